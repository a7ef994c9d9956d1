"""Rankings: refusals, and the order of values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.language.differences import differences
from headrace.operators.top.state import RankTable
from headrace.operators.window.emission.policy import Turn
from headrace.operators.window.table import PaneTable
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan import metadata
from headrace.plan.steps import definition_of, steps_of
from headrace.store.keeper import Passage
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.values import insert, ordered, table_from
from tests.refusals import text_of

MINUTE = timedelta(minutes=1)


def counts(window: Any = None, emit: Any = "updates", **more: Any) -> hr.Aggregation:
    source = hr.App("shop").topic(
        "orders", schema="item string, shop string, at timestamp", event_time="at"
    )
    return hr.aggregate(
        source,
        by=["item", "shop"],
        window=window or hr.tumbling(MINUTE),
        lateness=hr.Lateness(MINUTE, MINUTE),
        emit=emit,
        hits=hr.count(),
        **more,
    )


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "rows": (lambda: hr.top(counts().input, 3, by="hits"), "needs an aggregation"),  # type: ignore[arg-type]
    "none": (lambda: hr.top(counts(), 0, by="hits"), "n cannot be 0"),
    "true": (lambda: hr.top(counts(), True, by="hits"), "needs a whole number"),
    "value": (lambda: hr.top(counts(), 3, by="hit"), "Did you mean 'hits'"),
    "key": (lambda: hr.top(counts(), 3, by="hits", within="shops"), "Did you mean 'shop'"),
    "rank": (lambda: hr.top(counts(rank=hr.count()), 3, by="hits"), "the same name"),
    "sliding": (lambda: hr.top(counts(hr.sliding(MINUTE)), 3, by="hits"), "cannot be ranked"),
    "final": (
        lambda: hr.top(counts(hr.running(MINUTE), "final"), 3, by="hits"),
        "never final",
    ),
    "again": (
        lambda: hr.aggregate(
            hr.top(counts(hr.session(MINUTE)), 3, by="hits"),
            by="item",
            window=hr.tumbling(MINUTE),
            lateness=hr.Lateness(MINUTE, MINUTE),
            n=hr.count(),
        ),
        "a rank is never final",
    ),
    "more key": (
        lambda: hr.App("shop").view(
            "top", hr.top(counts(), 3, by="hits"), key=["window_start", "rank", "item"]
        ),
        "Leave out item",
    ),
    "rows more": (
        lambda: hr.App("shop").publish("out", hr.top(counts(), 3, by="hits"), early=3),
        "its row may change first",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_ranked_is_refused_at_its_line(case: str) -> None:
    declare, reason = REFUSED[case]
    with pytest.raises(InvalidPipeline, match=r"test_top\.py") as refused:
        declare()
    assert re.search(reason, text_of(refused.value))


def test_a_place_is_known_by_its_window_and_rank() -> None:
    board = hr.top(counts(), 3, by="hits", within="shop")
    assert board.key == ("shop", "window_start", "rank")
    assert board.columns == ("shop", "window_start", "window_end", "rank", "item", "hits")
    assert hr.top(counts(hr.running(MINUTE)), 3, by="hits", within="shop").key == ("shop", "rank")


def test_another_ranking_is_another_step() -> None:
    found = []
    for n in (3, 4):
        app = hr.App("shop")
        app.view("top", hr.top(counts(), n, by="hits"))
        (step,) = steps_of(app)
        found.append(definition_of(step))
    assert differences(*found) == ["the ranking was the top 3 by 'hits' and is the top 4 by 'hits'"]


def test_decimals_are_ranked_as_numbers(tmp_path: Path) -> None:
    values = [Decimal(text) for text in ("-10.0000000", "-9", "0E-7", "1E-7", "9.5", "10", "1E+2")]
    database = Database(tmp_path / "test.db", "test")
    with database.writing() as db:
        db.execute("CREATE TABLE t (v TEXT)")
        db.executemany("INSERT INTO t VALUES (?)", [(str(value),) for value in reversed(values)])
        order = ordered("v", pa.decimal128(20, 7))
        found = [Decimal(str(v)) for (v,) in db.execute(f"SELECT v FROM t ORDER BY {order}")]
    database.close()
    assert found == values


@pytest.mark.parametrize(("n", "tracked"), [(0, 10), (11, 10), (1, 2_000_000)])
def test_more_values_than_are_tracked_cannot_be_asked_for(n: Any, tracked: int) -> None:
    with pytest.raises(InvalidPipeline, match="cannot keep a top"):
        hr.approx_top("item", n, tracked=tracked)


@pytest.mark.parametrize(
    ("tracked", "size"), [(1, 8), (6, 8), (7, 16), (12, 16), (1_000, 2_048), (1_536, 2_048)]
)
def test_a_count_is_off_by_no_more_than_its_share_of_the_map(tracked: int, size: int) -> None:
    made = hr.approx_top("item", 1, tracked=tracked)
    assert made.error(2 * size) == 7
    assert made.error(size // 4) == 0


def board_of(players: int, database: Database) -> tuple[PaneTable, RankTable]:
    """A live board of ten of many players, all but the last hundred with the same score."""
    app = hr.App("game")
    points = app.topic("points", schema="player string, won int, at timestamp", event_time="at")
    totals = hr.aggregate(
        points,
        by="player",
        window=hr.running(hr.FOREVER),
        lateness=hr.Lateness(MINUTE, MINUTE),
        score=hr.sum("won"),
    )
    app.view("board", hr.top(totals, 10, by="score"))
    (step,) = steps_of(app)
    moment = pa.timestamp("us", tz="UTC")
    numbers = ("score", metadata.REVISION, metadata.ROWS)
    schema = pa.schema(
        [
            ("player", pa.string()),
            (WINDOW_START, moment),
            (WINDOW_END, moment),
            *((name, pa.int64()) for name in numbers),
        ]
    )
    table = PaneTable(step, schema)
    slots = RankTable(step, table)
    with database.writing() as db:
        table.create(db)
        slots.create(db)
        insert(
            db, table.name, panes(table, range(players), [max(0, 100 - n) for n in range(players)])
        )
    return table, slots


def panes(table: PaneTable, players: Sequence[int], scores: Sequence[int]) -> pa.Table:
    rows = [
        (f"p{n:06}", 0, micros(hr.FOREVER), score, 1, 1)
        for n, score in zip(players, scores, strict=True)
    ]
    return table_from(rows, table.schema)


def work_of_an_update(players: int, folder: Path) -> tuple[int, list[tuple[int, str]]]:
    """The work of SQLite when a few of many players score, and the players that it publishes."""
    database = Database(folder / f"{players}.db", "game")
    table, slots = board_of(players, database)
    turn = Turn(Passage(None, 0), Passage(None, -1), 0)
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    with database.writing() as db:
        slots.touch(db, panes(table, [0], [100]))
        slots.rank(db, turn)
        db.set_progress_handler(count, 10)
        rows = panes(table, [4, 500, 501], [99, 3, 4])
        table.merge(db, rows, remember=False)
        slots.touch(db, rows)
        ranked = slots.rank(db, turn)
        table.forget(db, turn.closed.after)
        db.set_progress_handler(None)
    database.close()
    changes = ranked.rows.select(["rank", "player"]).to_pylist()
    return steps, [(row["rank"], row["player"]) for row in changes]


def test_what_an_update_costs_does_not_grow_with_the_players(tmp_path: Path) -> None:
    few, changes = work_of_an_update(1_000, tmp_path)
    many, same = work_of_an_update(30_000, tmp_path)
    assert changes == same == [(3, "p000004"), (4, "p000002"), (5, "p000003")]
    assert many < 1.2 * few, (few, many)


def test_a_board_that_looks_at_every_player_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RankTable, "create", PaneTable.create)
    few, _ = work_of_an_update(1_000, tmp_path)
    many, _ = work_of_an_update(30_000, tmp_path)
    assert many > 5 * few, (few, many)
