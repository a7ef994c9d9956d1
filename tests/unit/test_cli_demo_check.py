"""The demo's recount follows the lateness rule, and its check fails on a single wrong count."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.cli.demonstration import stage
from headrace.cli.demonstration.check import (
    DEAD,
    LATE,
    TOPIC,
    all_read,
    conserved,
    rule_of,
    same_counts,
    same_dead,
    same_late,
)
from headrace.cli.demonstration.generator import Generator, page_views, plan_live, plan_once
from headrace.cli.demonstration.recount import Recount, Rule, late_rows, recount, stored_rows
from headrace.cli.loading import load_app
from headrace.clock import SECOND, VirtualClock, to_datetime, to_micros
from headrace.log import Log, open_log
from headrace.pipeline.app import App
from headrace.plan.law import Law
from headrace.store import Result
from tests.integration.test_cli_running import Cli
from tests.waiting import wait_until

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = 60 * SECOND
RULE = Rule(MINUTE, 10 * SECOND, 30 * SECOND, 60 * MINUTE)
SCHEMA = "url string, user string, at timestamp"


def start(minute: int) -> int:
    return to_micros(NOON) + minute * MINUTE


def log_of(folder: Path, *commits: list[int | None]) -> None:
    """A log with page views at these seconds after noon, at five past twelve."""
    with open_log(f"file:{folder}", clock=VirtualClock(NOON + timedelta(minutes=5))) as log:
        log.create_topic(TOPIC, schema=SCHEMA, key="url", event_time="at", partitions=2)
        with log.producer() as producer:
            for commit in commits:
                with producer.transaction() as transaction:
                    for second in commit:
                        at = None if second is None else NOON + timedelta(seconds=second)
                        transaction.send(TOPIC, {"url": "/", "user": "ann", "at": at})


# The recount


def test_rows_come_from_the_segments_with_their_commits(tmp_path: Path) -> None:
    log_of(tmp_path, [5, 50], [71])
    rows = stored_rows(tmp_path, TOPIC)
    assert rows.column("number").to_pylist() == [1, 1, 2]
    assert set(rows.column("time").to_pylist()) == {to_micros(NOON + timedelta(minutes=5))}
    assert stored_rows(tmp_path, "no such topic").num_rows == 0


def test_a_row_is_late_by_the_frontier_before_its_commit(tmp_path: Path) -> None:
    # 12:00 stays open until the frontier is at 12:01:40: its end plus delay and grace.
    log_of(tmp_path, [5], [99], [20], [100, 21], [22], [59, 60])
    again = recount(tmp_path, TOPIC, RULE)
    assert again.hits == {("/", start(0)): 3, ("/", start(1)): 3}
    assert again.late == Counter(
        {("/", "ann", to_micros(NOON) + second * SECOND): 1 for second in (22, 59)}
    )
    assert (again.rows, again.counted, again.dead) == (8, 6, 0)


def test_a_row_that_cannot_be_believed_is_dead_and_moves_no_frontier(tmp_path: Path) -> None:
    hour = 3600 + 5 * 60
    log_of(tmp_path, [5], [None, hour + 1], [6])
    again = recount(tmp_path, TOPIC, RULE)
    assert again.dead == 2
    assert again.hits == {("/", start(0)): 2}


def test_a_row_just_within_the_skew_counts(tmp_path: Path) -> None:
    hour = 3600 + 5 * 60
    log_of(tmp_path, [hour], [5])
    again = recount(tmp_path, TOPIC, RULE)
    assert again.dead == 0
    assert again.late.total() == 1


# The check

LAW = Law(rows=10, dead=2, pairs=8, counted=7, late=1)
AGAIN = Recount(10, 2, {("/", 0): 4, ("/a", 0): 3}, Counter({("/", "ann", 5): 1}))


def test_a_true_account_is_good() -> None:
    assert all_read(LAW, AGAIN, 10).holds
    assert conserved(LAW).holds
    assert same_counts(dict(AGAIN.hits), AGAIN).holds
    assert same_late(LAW, Counter(AGAIN.late), AGAIN).holds
    assert same_dead(LAW, 2, AGAIN).holds


@pytest.mark.parametrize(
    "panes",
    [
        {("/", 0): 5, ("/a", 0): 3},
        {("/", 0): 5, ("/a", 0): 2},
        {("/", 0): 4},
        {("/", 0): 4, ("/a", 0): 3, ("/b", 0): 1},
        {("/", MINUTE): 4, ("/a", 0): 3},
    ],
)
def test_a_count_that_is_wrong_missing_too_many_or_elsewhere_is_seen(
    panes: dict[tuple[str, int], int],
) -> None:
    finding = same_counts(panes, AGAIN)
    assert not finding.holds
    assert "0 differ" not in finding.remark


def test_rows_that_were_not_read_or_not_written_are_seen() -> None:
    assert not all_read(LAW + Law(rows=-1), AGAIN, 10).holds
    assert not all_read(LAW, AGAIN, 11).holds


def test_a_broken_law_is_seen() -> None:
    assert not conserved(LAW + Law(counted=1)).holds


def test_a_late_row_that_is_missing_doubled_or_another_is_seen() -> None:
    assert not same_late(LAW, Counter(), AGAIN).holds
    assert not same_late(LAW, Counter({("/", "ann", 5): 2}), AGAIN).holds
    assert not same_late(LAW, Counter({("/", "bob", 5): 1}), AGAIN).holds
    assert not same_late(LAW + Law(late=1), Counter(AGAIN.late), AGAIN).holds


def test_a_dead_letter_that_is_missing_is_seen() -> None:
    assert not same_dead(LAW, 1, AGAIN).holds
    assert not same_dead(LAW + Law(dead=1), 2, AGAIN).holds


# The generator


def tables(seed: int) -> list[pa.Table]:
    clock = VirtualClock(NOON)
    plan = plan_once(3_000, clock.now(), None)
    return list(page_views(type(plan)(**{**vars(plan), "seed": seed}), clock))


def test_a_seed_makes_the_same_page_views_each_time() -> None:
    assert tables(1) == tables(1)
    assert tables(1) != tables(2)
    assert sum(table.num_rows for table in tables(1)) == 3_000


def test_there_are_page_views_of_every_kind(tmp_path: Path) -> None:
    clock = VirtualClock(NOON)
    with open_log(f"file:{tmp_path}", clock=clock) as log, log.producer() as producer:
        log.create_topic(TOPIC, schema=SCHEMA, key="url", event_time="at")
        for rows in tables(1):
            producer.append(TOPIC, rows)
    patient = recount(tmp_path, TOPIC, Rule(MINUTE, 10 * SECOND, 5 * MINUTE, 60 * MINUTE))
    assert 20 < patient.late.total() < 80
    assert 2 <= patient.dead < 30
    hasty = recount(tmp_path, TOPIC, Rule(MINUTE, 10 * SECOND, 0, 60 * MINUTE))
    assert hasty.late.total() > patient.late.total() + 50


def test_event_time_goes_on_where_an_earlier_demo_ended() -> None:
    now = to_micros(NOON)
    assert to_datetime(plan_once(10, now, None).start) == NOON - timedelta(hours=24, minutes=-1)
    assert plan_live(10, now, now - 30 * SECOND).start == now


# The command


class Counted:
    """A stub of the pipeline: writes the recount's results, except for tampered ones."""

    first_result = 1.0
    seconds = 2.0

    def __init__(self, log: Log, app: App, generator: Generator) -> None:
        self._log, self._app, self._generator = log, app, generator

    def scene(self) -> Any:
        return SimpleNamespace(written=self._generator.written)

    def top(self, views: Any) -> list[tuple[str, int]]:
        return [("/", 1)]

    def run(self) -> None:
        with self._generator as generator:
            wait_until(lambda: generator.ended)
        generator.check()
        folder = Path(self._log.url.removeprefix("file:"))
        again = recount(folder, TOPIC, rule_of(self._app))
        self._log.create_topic(LATE, schema=SCHEMA, event_time="at")
        self._log.create_topic(DEAD)
        with self._log.producer() as producer:
            for url, user, at in again.late.elements():
                producer.send(LATE, {"url": url, "user": user, "at": to_datetime(at)})
            for _ in range(again.dead):
                producer.send(DEAD, "broken")
        assert late_rows(folder, LATE) == again.late


class Shown:
    """A stub of a pipeline's views: the recount's counts, and one too many."""

    def __init__(self, url: str, too_many: int) -> None:
        app = load_app(f"{stage.pipeline_file()}:app")
        again = recount(Path(url.removeprefix("file:")), TOPIC, rule_of(app))
        late, counted = again.late.total(), again.counted
        self._law = Law(again.rows, 0, again.dead, 0, 0, counted + late, counted, late)
        self._hits = dict(again.hits)
        self._hits[min(self._hits)] += too_many

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def state(self, view: str) -> Any:
        return SimpleNamespace(law=self._law)

    def rows(self, view: str) -> list[dict[str, Any]]:
        return [
            {"url": url, "window_start": f"{to_datetime(at):%Y-%m-%d %H:%M:%S}", "hits": hits}
            for (url, at), hits in self._hits.items()
        ]

    def query(self, sql: str) -> Result:
        return Result((), [], False)


@pytest.mark.parametrize("too_many, code", [(0, 0), (1, 1)])
def test_the_demo_exits_with_1_if_one_count_is_tampered_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, too_many: int, code: int
) -> None:
    monkeypatch.setattr(stage, "Play", Counted)
    monkeypatch.setattr(stage, "open_views", lambda url, app: Shown(url, too_many))
    cli = Cli(tmp_path)
    done = cli.run("demo", "--once", "--events", "400", "--json", "--log", cli.url, code=code)
    report = json.loads(done.stdout)
    assert report["holds"] is (code == 0)
    wrong = [finding for finding in report["findings"] if not finding["holds"]]
    assert [finding["law"] for finding in wrong] == (
        ["page views counted in their minute"] if code else []
    )
