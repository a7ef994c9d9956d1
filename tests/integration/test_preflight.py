"""A run's status without Spark: steps are stored by hand, and then changed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest

import headrace as hr
from headrace.application.backlog import backlog
from headrace.cli import run
from headrace.errors import ChangedPipeline, ForeignCheckpoint, PipelineError
from headrace.log import Log
from headrace.operators.registry import operator_of
from headrace.operators.window.payload import Panes, PaneShapes
from headrace.plan.batch import StepBatch
from headrace.plan.crash_points import nothing
from headrace.plan.law import Law
from headrace.plan.position import Position, position_at
from headrace.plan.steps import Step, fingerprints, steps_of
from headrace.runtime.checkpoint import Checkpoint, owner_of
from headrace.store.location import checkpoint_of, database_of
from headrace.store.outbox import Outbox
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.sink import ViewSink
from tests.integration.test_cli_running import Cli

MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("item", pa.string()), ("window_start", TIME), ("window_end", TIME), ("sold", pa.int64()),
        ("_revision", pa.int64()), ("_rows", pa.int64()),
    ]
)  # fmt: skip
PIPELINE = """\
from datetime import timedelta as td
import headrace as hr

app = hr.App("shop")
orders = app.topic("orders", schema="item string, at timestamp", event_time="at")
sold = hr.aggregate(
    orders,
    by="item",
    window=hr.tumbling(td(minutes=1)),
    lateness=hr.Lateness(delay=td(minutes=1), grace=td(minutes=1)),
    sold=hr.count(),
)
app.view("sales", sold)
"""


def declare(
    *views: str,
    size: timedelta = MINUTE,
    condition: str | None = None,
    topics: int = 1,
    schema: str = "item string, at timestamp",
) -> hr.App:
    app = hr.App("shop")
    sources = [app.topic("orders", schema=schema, event_time="at")]
    sources += [app.topic(f"orders{n}", schema=schema, event_time="at") for n in range(1, topics)]
    stream: hr.Stream = sources[0] if topics == 1 else hr.merge(*sources)
    if condition is not None:
        stream = hr.filter(stream, condition)
    for view in views or ("sales",):
        made = hr.aggregate(
            stream,
            by="item",
            window=hr.tumbling(size),
            lateness=hr.Lateness(MINUTE, MINUTE),
            sold=hr.count(),
        )
        app.view(view, made)
    return app


class Stored:
    """A log with an order, and stored results of steps that never ran."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def order(self, topic: str = "orders") -> None:
        with self.log.producer() as producer:
            producer.send(topic, {"item": "pen", "at": NOON})

    def store(self, app: hr.App, batches: int = 1) -> None:
        """Store empty results up to the end of the log, and a checkpoint of `batches` batches."""
        path = database_of(self.log.url, app.name)
        database = Database(path, app.name)
        with self.log.producer(id="by-hand") as producer:
            outbox = Outbox(database, self.log, producer, nothing)
            for step in steps_of(app):
                sink = ViewSink(
                    database, outbox, self.log, step, PaneShapes(SCHEMA, SCHEMA),
                    operator_of(step.stream).keeper, changelog=True, crash_point=nothing,
                )  # fmt: skip
                end = {t: position_at(self.log, t, self.log.head()) for t in step.topics}
                empty = Panes(SCHEMA.empty_table())
                sink.store(StepBatch(sink.begun, end, None, None, None, Law(), empty))
                self.remember(step, sink.begun, end, batches)
        database.close()

    def remember(self, step: Step, begun: Any, end: dict[str, Position], batches: int) -> Path:
        """Write a checkpoint as Spark does."""
        path = checkpoint_of(self.log.url, step.app, step.name)
        Checkpoint(path).claim(owner_of(step, begun))
        for number in range(batches):
            for folder, text in (("offsets", self.offsets(end)), ("commits", "v1\n{}")):
                (path / folder).mkdir(exist_ok=True)
                (path / folder / str(number)).write_text(text)
            (path / "state/0/0").mkdir(parents=True, exist_ok=True)
            (path / "state/0/0" / f"{number + 1}.delta").touch()
        return path

    @staticmethod
    def offsets(end: dict[str, Position]) -> str:
        lines = [json.dumps({"topic": t, **position.to_json()}) for t, position in end.items()]
        return "\n".join(["v1", "{}", *lines])


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    with hr.open_log(f"file:{tmp_path / 'log'}") as log:
        for topic in ("orders", "orders1"):
            log.create_topic(topic, schema="item string, at timestamp", event_time="at")
        made = Stored(log)
        made.order()
        yield made


def found(stored: Stored, app: hr.App) -> list[tuple[str, str]]:
    return [(step.step, step.status) for step in hr.preflight(app, stored.log).steps]


def test_before_the_first_run_everything_is_new_and_nothing_is_made(tmp_path: Path) -> None:
    report = hr.preflight(declare(), f"file:{tmp_path / 'nowhere'}")
    assert [(step.step, step.status) for step in report.steps] == [("sales", "new")]
    assert report.ok
    assert report.first
    assert report.news == ()
    assert list(tmp_path.iterdir()) == []


def test_the_rows_to_read_are_counted_without_spark(stored: Stored, tmp_path: Path) -> None:
    app, url = declare("sales", topics=2), stored.log.url
    stored.order("orders1")
    assert backlog(app, url) == 2
    stored.store(app)
    assert backlog(app, url) == 0
    stored.order("orders1")
    assert (backlog(app, url), backlog(app, url, fresh=True)) == (1, 3)
    more = declare("sales", "young", topics=2)
    assert backlog(more, url) == 3, "a new step reads all of them"
    assert backlog(app, f"file:{tmp_path / 'nowhere'}") == 0


def test_a_run_is_brief_by_itself_up_to_a_number_of_rows(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SHORT_RUN", 2)
    stored.order()
    assert run._is_short(declare(), stored.log.url, fresh=False)
    stored.order()
    assert not run._is_short(declare(), stored.log.url, fresh=False)


def test_each_step_is_told_apart(stored: Stored) -> None:
    stored.store(declare("sales", "old"))
    app = declare("sales", "young")
    report = hr.preflight(app, stored.log)
    assert [(step.step, step.status) for step in report.steps] == [
        ("sales", "unchanged"), ("young", "new"), ("old", "undeclared"),
    ]  # fmt: skip
    assert [step.step for step in report.news] == ["young", "old"]
    assert report.steps[0].saved == "up to commit 1, reused"
    report.require()


WIDER = "item string, at timestamp, shop string"


def test_an_added_column_that_no_step_uses_changes_nothing(stored: Stored) -> None:
    stored.store(declare())
    assert found(stored, declare(schema=WIDER)) == [("sales", "unchanged")]
    assert found(stored, declare(schema=WIDER, condition="shop = 'a'")) == [("sales", "changed")]
    assert stored.log.topic("orders").topic == declare().topics["orders"]  # a run adds it


@pytest.mark.parametrize(
    "schema", ["item string, shop string, at timestamp", f"{WIDER} not null", "at timestamp"]
)
def test_columns_that_a_topic_cannot_get_are_refused(stored: Stored, schema: str) -> None:
    stored.store(declare())
    app = hr.App("shop")
    rows = app.topic("orders", schema=schema, event_time="at")
    app.publish("times", hr.select(rows, "at"))
    (step, _) = hr.preflight(app, stored.log).steps
    assert step.status == ("new" if schema == "at timestamp" else "refused")


def test_late_rows_can_be_published_later_with_columns_that_no_step_uses(stored: Stored) -> None:
    stored.store(declare(schema=WIDER))
    app = declare(schema=WIDER)
    sales = app.views["sales"].stream
    assert isinstance(sales, hr.Aggregation)
    app.publish("orders.late", sales.late)
    assert found(stored, app) == [("sales", "unchanged")]


def test_what_an_earlier_version_has_stored_with_all_columns_is_used_on(stored: Stored) -> None:
    """Its fingerprint had the whole schema of a topic."""
    app = declare(schema=WIDER)
    stored.store(app)
    (step,) = steps_of(app)
    mine, earlier, *_ = fingerprints(step)
    assert mine != earlier
    path = checkpoint_of(stored.log.url, app.name, "sales") / "headrace.json"
    path.write_text(path.read_text().replace(mine, earlier))
    with contextlib.closing(apsw.Connection(str(database_of(stored.log.url, "shop")))) as db:
        db.execute("UPDATE _headrace_step SET fingerprint = ?", (earlier,))
    assert found(stored, app) == [("sales", "unchanged")]
    stored.store(app)  # by this version, which can then tell what is used
    assert found(stored, declare()) == [("sales", "unchanged")]


def test_what_has_changed_is_told_with_the_choices(stored: Stored) -> None:
    stored.store(declare("sales", "other"))
    report = hr.preflight(
        declare("sales", "other", size=2 * MINUTE, condition="item != ''"), stored.log
    )
    assert [step.status for step in report.steps] == ["changed", "changed"]
    assert report.steps[0].changes == (
        "the window was tumbling 1m and is tumbling 2m", "the filter is new",
    )  # fmt: skip
    assert not report.ok
    with pytest.raises(ChangedPipeline, match=r"'sales' has .* 'other' has ") as caught:
        report.require()
    for choice in (
        "rebuild MODULE:APP sales",
        "rebuild MODULE:APP other",
        "--fresh",
        "another name",
    ):
        assert choice in caught.value.hint


def test_a_checkpoint_of_something_else_is_told(stored: Stored) -> None:
    stored.store(declare("sales", "other"))
    app = declare("sales", "other")
    mine, theirs = (checkpoint_of(stored.log.url, "shop", name) for name in ("sales", "other"))
    shutil.rmtree(mine)
    shutil.copytree(theirs, mine)
    assert found(stored, app) == [("sales", "refused"), ("other", "unchanged")]
    with pytest.raises(ForeignCheckpoint, match="belongs to step 'other' of 'shop'"):
        hr.preflight(app, stored.log).require()


def test_a_checkpoint_that_is_ahead_of_the_results_is_told(stored: Stored) -> None:
    app = declare()
    stored.store(app)
    stored.order()
    end = {"orders": position_at(stored.log, "orders", stored.log.head())}
    path = checkpoint_of(stored.log.url, "shop", "sales")
    (path / "offsets" / "0").write_text(Stored.offsets(end))
    with pytest.raises(PipelineError, match="its checkpoint resumes at commit 2"):
        hr.preflight(app, stored.log).require()

    database_of(stored.log.url, "shop").unlink()
    with pytest.raises(PipelineError, match=r"up to commit 0 .* resumes at commit 2"):
        hr.preflight(app, stored.log).require()


def test_a_checkpoint_that_is_missing_or_behind_is_made_up_for(stored: Stored) -> None:
    stored.store(declare(), batches=0)
    (step,) = hr.preflight(declare(), stored.log).steps
    assert step.status == "unchanged"
    assert "Spark reads some rows again" in step.saved
    shutil.rmtree(checkpoint_of(stored.log.url, "shop", "sales"))
    assert hr.preflight(declare(), stored.log).steps == (step,)


def test_several_topics_without_their_checkpoint_may_not_do(stored: Stored) -> None:
    app = declare(topics=2)
    stored.order("orders1")
    stored.store(app, batches=0)
    (step,) = hr.preflight(app, stored.log).steps
    assert step.status == "unchanged"
    assert "which may fail with several topics" in step.saved


@pytest.mark.parametrize(
    "damage, said",
    [
        (lambda path: shutil.rmtree(path / "state"), "the state of its 3 batches is missing"),
        (lambda path: (path / "state/0/0/3.delta").unlink(), "the state of its 3 batches"),
        (lambda path: (path / "offsets/2").unlink(), "the end of batch 2 cannot be read"),
        (lambda path: (path / "offsets/2").write_text('v1\n{"topic'), "the end of batch 2"),
    ],
    ids=["no state", "old state", "no offsets", "torn offsets"],
)
def test_a_damaged_checkpoint_is_told(stored: Stored, damage: Any, said: str) -> None:
    stored.store(declare(), batches=3)
    assert hr.preflight(declare(), stored.log).ok
    damage(checkpoint_of(stored.log.url, "shop", "sales"))
    with pytest.raises(PipelineError, match=f"is damaged: {said}") as caught:
        hr.preflight(declare(), stored.log).require()
    assert "Remove it" in caught.value.hint


class Shop(Cli):
    """The command line in a folder with a pipeline, on a machine without Java."""

    def without_java(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
        return subprocess.run(
            [sys.executable, "-m", "headrace.cli.main", *words],
            env=environment, cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip


def test_a_changed_pipeline_is_refused_without_spark(tmp_path: Path, stored: Stored) -> None:
    stored.store(declare())
    shop = Shop(tmp_path)
    file = tmp_path / "shop.py"
    file.write_text(PIPELINE)
    assert "Spark did not start" in shop.without_java("run", "shop:app").stderr
    done = shop.without_java("run", "shop:app", "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == ["step", "sales"]
    assert "unchanged" in done.stdout

    file.write_text(
        PIPELINE.replace("window=hr.tumbling(td(minutes=1))", "window=hr.session(td(1))")
    )
    done = shop.without_java("run", "shop:app")
    assert done.returncode == 2
    assert done.stderr.startswith("error: Step 'sales' has changed since its results were stored")
    assert "the window was tumbling 1m and is session 1d\n  → headrace rebuild " in done.stderr
    done = shop.without_java("run", "shop:app", "--check")
    assert done.returncode == 1
    assert "changed" in done.stdout
    assert "→ headrace run --fresh" in done.stderr
    (report,) = (
        json.loads(line)
        for line in shop.without_java("run", "shop:app", "--check", "--json").stdout.splitlines()
    )
    assert (report["status"], report["ok"]) == ("changed", False)
    assert report["changes"] == ["the window was tumbling 1m and is session 1d"]


def test_spark_is_not_started_for_what_is_refused(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    stored.store(declare())
    monkeypatch.setattr("headrace.application.run.spark_session", fail)
    with pytest.raises(ChangedPipeline):
        hr.run(declare(size=2 * MINUTE), stored.log)
    with pytest.raises(AssertionError, match="Spark was started"):
        hr.run(declare(), stored.log)


@pytest.mark.slow
def test_a_rebuild_that_nobody_can_answer_for_is_refused_at_once(
    tmp_path: Path, stored: Stored
) -> None:
    (tmp_path / "shop.py").write_text(PIPELINE)
    shop = Shop(tmp_path)
    for words, said in (
        ((), "There is no terminal to ask on"),
        (("--diff", "--yes"), "--diff never switches"),
        (("--until", "5", "--yes"), "--until never switches"),
        (("--until", "latest"), "'latest' is neither a time nor a commit"),
    ):
        done = shop.without_java("rebuild", "shop:app", "sales", *words)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: {said}")
    done = shop.without_java("rebuild", "shop:app", "saels", "--diff")
    assert done.stderr == "error: Application 'shop' has no view 'saels'\n  → There are: sales\n"
    assert os.path.exists(tmp_path / "log")
