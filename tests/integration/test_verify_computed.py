"""Verification of a view that is no copy of a table: it is computed once more and compared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pyarrow as pa
import pytest

import headrace as hr
from headrace.application.verify import patience
from headrace.application.verify.result import HopResult
from headrace.application.verify.verify import verify
from headrace.store.location import database_of
from headrace.store.sqlite.difference import version_in
from tests import spark
from tests.conformance.memory_store import MemoryStore

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = pa.schema(
    [("item", pa.string()), ("price", pa.int32()), ("at", pa.timestamp("us", "UTC"))]
)
ITEMS = ["cup", "ink", "pad", "pen"]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[hr.Log]:
    with hr.open_log(f"file:{tmp_path}/log") as log:
        yield log


def declare(store: hr.Store) -> hr.App:
    """The revenue of each item, a minute at a time."""
    app = hr.App("shop")
    sales = app.topic("sales", schema="item string, price int, at timestamp", event_time="at")
    revenue = hr.aggregate(
        sales,
        by="item",
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(timedelta(0), timedelta(0)),
        revenue=hr.sum("price"),
    )
    app.view("revenue", revenue, store=store)
    return app


def damage(log: hr.Log, *statements: str) -> None:
    """Change the view behind the back of its pipeline."""
    with contextlib.closing(apsw.Connection(str(database_of(log.home, "shop")))) as db:
        version = version_in(db, "main", "revenue")
        assert version is not None
        for statement in statements:
            db.execute(statement.format(table=version.table))


def test_damage_of_a_computed_view_is_found_by_a_recomputation_and_mended(
    log: hr.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_PATIENCE", 0)
    app = declare(MemoryStore())
    at = NOON.isoformat()
    log.create_topic("sales", schema=COLUMNS, key="item", event_time="at")
    with log.producer() as producer:
        for price, item in enumerate(ITEMS, 1):
            producer.send("sales", {"item": item, "price": price, "at": at}, item)
    hr.run(app, log, spark=spark.shared())

    def hops(*, repair: bool = False) -> tuple[HopResult, ...]:
        (found,) = verify(app, log, spark=spark.shared(), repair=repair)
        return found.hops

    damage(
        log,
        "UPDATE {table} SET revenue = 99 WHERE item = 'cup'",
        "DELETE FROM {table} WHERE item = 'ink'",
        "UPDATE {table} SET item = 'pan' WHERE item = 'pad'",
    )
    recomputed, _ = hops()
    assert recomputed.one == "log, recomputed"
    found = {(row.kind, row.key["item"]): row for row in recomputed.rows_differing}
    assert sorted(found) == [
        ("different", "cup"), ("extra", "pan"), ("missing", "ink"), ("missing", "pad"),
    ]  # fmt: skip
    different = found["different", "cup"]
    assert (different.expected, different.found) == ({"revenue": 1}, {"revenue": 99})
    # What is mended is computed and compared once more.
    assert all(hop.proven for hop in hops(repair=True))
    with hr.open_views(log.home) as views:
        assert [row["item"] for row in views.rows("revenue")] == ITEMS
