"""Duplicates: refusals and their positions, explanations, and the terms of the law."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import headrace as hr
from headrace.application.run import StepProgress
from headrace.cli.step_tables import Rates, live_table, plain_line, step_json
from headrace.clock import VirtualClock, micros
from headrace.errors import InvalidPipeline
from headrace.language.differences import differences
from headrace.log import Log
from headrace.operators.dedup.declare import Keep
from headrace.operators.dedup.payload import Distinct, GroupShapes
from headrace.operators.dedup.state import GroupKeeper, GroupTable
from headrace.pipeline.row_steps import needed_columns
from headrace.pipeline.stream import Source
from headrace.plan.batch import StepBatch
from headrace.plan.crash_points import nothing
from headrace.plan.law import Law
from headrace.plan.metadata import OPENED
from headrace.plan.steps import definition_of, fingerprint, steps_of
from headrace.store.keeper import Passage, Stored
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.values import table_from
from tests.refusals import text_of

HOUR = timedelta(hours=1)


def source(app: hr.App | None = None, more: str = "") -> Source:
    schema = f"user string, event string, at timestamp{more}"
    return (app or hr.App("notes")).topic("notes", schema=schema, event_time="at")


def once(stream: hr.Stream | None = None, **more: Any) -> hr.Deduplicated:
    given: dict[str, Any] = {"by": ["user", "event"], "ttl": HOUR, "delay": HOUR, **more}
    return hr.deduplicate(stream or source(), **given)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no key": (lambda: once(by=[]), "need a key"),
    "key": (lambda: once(by="users"), "Did you mean 'user'"),
    "twice": (lambda: once(by=["user", "user"]), "named twice"),
    "no time": (lambda: once(ttl=timedelta(0)), "must be positive"),
    "less than none": (lambda: once(ttl=-HOUR), "must be positive"),
    "delay": (lambda: once(delay=-HOUR), "delay cannot be negative"),
    "keep": (lambda: once(keep="newest"), "Use 'first' or 'last'"),
    "name": (lambda: once(source(more=", watermark timestamp")), "'watermark' is reserved"),
    "view": (lambda: hr.App("notes").view("notes", once()), "key='id'"),
    "late first": (lambda: hr.App("notes").publish("late", once().late), "deduplicate"),
    "early": (
        lambda: hr.App("notes").publish("once", once(), early="never"),
        "written once",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_at_the_users_line(case: str) -> None:
    declare, words = REFUSED[case]
    with pytest.raises(InvalidPipeline) as refused:
        declare()
    assert words in text_of(refused.value)
    assert Path(__file__).name in str(refused.value)


def test_the_columns_are_those_of_the_stream_and_late_rows_say_how_late() -> None:
    step = once(by="USER")
    assert step.columns == ("user", "event", "at")
    assert step.by == ("user",)
    assert step.late.columns == ("user", "event", "at", "watermark", "late_by")
    assert step.keep == "first"


def declared(**more: Any) -> hr.App:
    app = hr.App("notes")
    step = once(hr.filter(source(app), "event != 'ping'"), **more)
    app.publish("once", step)
    app.publish("once.late", step.late)
    return app


def test_it_is_explained() -> None:
    explained = declared().explain()["once"]
    assert explained["then"] == "keeps rows where event != 'ping'"
    assert (
        explained["drops"]
        == "rows with the same user and event less than 1h before or after a kept row"
    )
    assert (
        explained["holds"]
        == "each user and event, until the highest event time is 2h past its first row"
    )
    assert "the first row of each, as it arrives" in explained["emits"]
    assert explained["publishes"] == "each row once, to topic once\nlate rows to topic once.late"
    last = declared(keep="last").explain()["once"]
    assert "once the highest event time is 2h past the first" in last["emits"]


def test_a_step_and_its_late_rows_are_one_and_what_changes_is_told() -> None:
    (step,) = steps_of(declared())
    assert (step.outputs, step.late) == (("once",), ("once.late",))
    assert not step.stream.has_checkpoint
    assert needed_columns(step.stream) == {"notes": {"user", "event", "at"}}
    (other,) = steps_of(declared(keep="last", ttl=2 * HOUR, by="user"))
    assert fingerprint(step) == fingerprint(steps_of(declared())[0])
    assert fingerprint(step) != fingerprint(other)
    assert differences(definition_of(step), definition_of(other)) == [
        "the rule for duplicates was the first within 1h, with a delay of 1h "
        "and is the last within 2h, with a delay of 1h",
        "the grouping was ('user', 'event') and is ('user',)",
    ]


def test_duplicates_are_a_term_of_the_law() -> None:
    law = Law(rows=10, dead=1, pairs=9, counted=5, late=1, duplicates=3)
    assert law.holds
    assert str(law) == "10 rows = 5 counted + 1 late + 3 duplicates + 1 dead"
    assert not Law(rows=10, pairs=10, counted=5, duplicates=4).holds
    assert "duplicates" not in str(Law(rows=1, pairs=1, counted=1))


def work_of_a_round(held: int, folder: Path) -> int:
    """The work of SQLite for a few keys in a state of many: find, replace and delete."""
    schema = pa.schema([("user", pa.string()), ("event", pa.string()), (OPENED, pa.int64())])
    table = GroupTable("once", ("user", "event"), schema)

    def groups(numbers: Iterable[int]) -> pa.Table:
        return table_from([(f"u{n:06}", "e", n) for n in numbers], schema)

    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    database = Database(folder / f"{held}.db", "notes")
    with database.writing() as db:
        table.create(db)
        assert table.replace(db, groups(range(held))) == held
        db.set_progress_handler(count, 5)
        found = table.of(db, groups([3, 500, held]).select(["user", "event"]))
        assert sorted(found.column(OPENED).to_pylist()) == [3, 500]
        assert table.replace(db, groups([3, held])) == 1
        assert [rows.num_rows for rows in table.over(db, 9)] == [10]
        assert table.forget(db, 9) == 10
        db.set_progress_handler(None)
    database.close()
    return steps


def test_what_a_round_costs_does_not_grow_with_what_is_held(tmp_path: Path) -> None:
    few, many = work_of_a_round(1_000, tmp_path), work_of_a_round(50_000, tmp_path)
    assert few > 10
    assert many < 1.2 * few, (few, many)


@pytest.mark.parametrize("keep", ["first", "last"])
def test_a_group_is_held_until_every_row_of_it_would_be_late(tmp_path: Path, keep: Keep) -> None:
    (step,) = steps_of(declared(keep=keep))
    rows = pa.schema([("user", pa.string()), ("event", pa.string())])
    shapes = GroupShapes(rows, None, rows.append(pa.field(OPENED, pa.int64())))
    keeper = GroupKeeper(Stored(step, shapes, cast("Log", None), None, nothing))
    group = table_from([("ann", "click", 0)], shapes.groups)
    database, over = Database(tmp_path / "notes.db", "notes"), 2 * micros(HOUR)
    with database.writing() as db:
        keeper.create(db)
        frontier: int | None = None
        for after, groups, held in ((None, 1, 1), (over - 1, 1, 1), (over, 0, 0)):
            some = group.slice(0, groups)
            found = Distinct(rows.empty_table(), some, 0)
            batch = StepBatch({}, {}, after, None, None, Law(), found)
            law = keeper.store(db, batch, Passage(frontier, after))
            assert keeper.recall(db, group.select(rows.names)).num_rows == held
            frontier = after
            if keep == "first":
                assert law == Law()
            else:
                waits = {None: 1, over - 1: 0, over: -1}[after]
                assert law == Law(counted=1 - held, waiting=waits, pairs=-waits)
    database.close()


def test_a_run_shows_how_many_duplicates_were_dropped() -> None:
    hour = micros(HOUR)
    law = Law(rows=10, dead=1, pairs=9, counted=5, late=1, duplicates=3)
    step = StepProgress("once", law, 2 * hour, 0, delay=HOUR)
    assert plain_line(step, Rates(VirtualClock())).endswith("0 filtered, 3 duplicates")
    assert live_table([step], Rates(VirtualClock())).columns[-1].header == "duplicates"
    assert step_json("shop", step)["duplicates"] == 3
    assert step.watermark == hour
