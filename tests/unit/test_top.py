"""Rankings: what is refused, and in which order values are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace import streams as hr
from headrace.engine.steps import definition_of, differences, steps_of
from headrace.errors import InvalidPipeline
from headrace.views.database import Database
from headrace.views.values import ordered

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
    "rows": (lambda: hr.top(counts().input, 3, by="hits"), "Only what is aggregated"),  # type: ignore[arg-type]
    "none": (lambda: hr.top(counts(), 0, by="hits"), "There is no top 0"),
    "true": (lambda: hr.top(counts(), True, by="hits"), "There is no top True"),
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
            hr.top(counts(), 3, by="hits"),
            by="item",
            window=hr.tumbling(MINUTE),
            lateness=hr.Lateness(MINUTE, MINUTE),
            n=hr.count(),
        ),
        "already aggregated",
    ),
    "more key": (
        lambda: hr.App("shop").view(
            "top", hr.top(counts(), 3, by="hits"), key=["window_start", "rank", "item"]
        ),
        "Leave out item",
    ),
    "rows more": (
        lambda: hr.App("shop").publish("out", hr.top(counts(), 3, by="hits"), early=3),
        "others may take it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_ranked_is_refused_at_its_line(case: str) -> None:
    declare, reason = REFUSED[case]
    with pytest.raises(InvalidPipeline, match=reason) as refused:
        declare()
    assert "test_top.py" in str(refused.value)


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


@pytest.mark.parametrize(("n", "tracked"), [(0, 10), (11, 10), (1, 2_000_000), (1.5, 10)])
def test_more_values_than_are_tracked_cannot_be_asked_for(n: Any, tracked: int) -> None:
    with pytest.raises(InvalidPipeline, match="cannot be had"):
        hr.approx_top("item", n, tracked=tracked)


@pytest.mark.parametrize(
    ("tracked", "size"), [(1, 8), (6, 8), (7, 16), (12, 16), (1_000, 2_048), (1_536, 2_048)]
)
def test_a_count_is_off_by_no_more_than_its_share_of_the_map(tracked: int, size: int) -> None:
    made = hr.approx_top("item", 1, tracked=tracked)
    assert made.error(2 * size) == 7
    assert made.error(size // 4) == 0
