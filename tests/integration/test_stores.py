"""Stores beside a run: they follow while it runs, and hold back nobody."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.application.stores import bring_up_to_date
from headrace.errors import StoreError
from headrace.store import followers
from headrace.store.contract import StoredView
from headrace.store.status import statuses
from headrace.store.suite import rows_of
from headrace.testing import scripted_log
from tests import spark
from tests.conformance.memory_store import MemoryStore

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])


def pages(*stores: MemoryStore) -> hr.App:
    app = hr.App("pages")
    clicks = app.topic("clicks", schema="user string, at timestamp, n bigint", event_time="at")
    app.view("latest", clicks, key="user", store=stores)
    return app


def shown(store: MemoryStore) -> list[tuple[str, int]]:
    view = StoredView("pages", "latest", COLUMNS, ("user",), Path("/nowhere"))
    with store.live(view) as live:
        return [(row["user"], row["n"]) for row in rows_of(live)]


def test_a_run_until_caught_up_brings_its_stores_up_to_date() -> None:
    one, other = MemoryStore(), MemoryStore(name="other")
    app = pages(one, other)
    with scripted_log() as log:
        log.log.ensure_topic(app.topics["clicks"])
        log.write(
            "clicks", {"user": "ann", "at": NOON, "n": 1}, {"user": "bob", "at": NOON, "n": 2}
        )
        log.run(app, spark=spark.shared())
        assert shown(one) == shown(other) == [("ann", 1), ("bob", 2)]
        log.write("clicks", {"user": "ann", "at": NOON, "n": 3})
        results = log.run(app, spark=spark.shared())
        assert shown(one) == [("ann", 3), ("bob", 2)]
        assert results.view("latest")[0]["n"] == 3


def test_a_run_without_stores_leaves_them_to_their_own_processes() -> None:
    store = MemoryStore()
    app = pages(store)
    with scripted_log() as log:
        log.log.ensure_topic(app.topics["clicks"])
        log.write("clicks", {"user": "ann", "at": NOON, "n": 1})
        with hr.start(
            app, log.log, until_caught_up=True, spark=spark.shared(), stores=False
        ) as running:
            running.wait()
        # A follower would have noted at least that it has stopped.
        assert statuses(log.log, 0) == []
        bring_up_to_date(app, log.log)
        assert shown(store) == [("ann", 1)]


def test_a_store_that_is_down_holds_back_neither_the_view_nor_other_stores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followers, "PATIENCE", 0)
    down, up = MemoryStore(name="down"), MemoryStore(name="up")
    down.shelf.down = True
    app = pages(down, up)
    with scripted_log() as log:
        log.log.ensure_topic(app.topics["clicks"])
        log.write("clicks", {"user": "ann", "at": NOON, "n": 1})
        with pytest.raises(StoreError, match="store down: of view 'latest' is not: The memory is"):
            log.run(app, spark=spark.shared())
        with hr.open_views(log.log.home, app="pages") as views:
            assert [row["n"] for row in views.rows("latest")] == [1]
        assert shown(up) == [("ann", 1)]
        down.shelf.down = False
        log.run(app, spark=spark.shared())
        assert shown(down) == [("ann", 1)]


def test_adding_a_store_keeps_the_stored_results() -> None:
    store = MemoryStore()
    with scripted_log() as log:
        plain, more = pages(), pages(store)
        log.log.ensure_topic(plain.topics["clicks"])
        log.write("clicks", {"user": "ann", "at": NOON, "n": 1})
        log.run(plain, spark=spark.shared())
        assert [step.status for step in hr.preflight(more, log.log).steps] == ["unchanged"]
        log.run(more, spark=spark.shared())
        assert shown(store) == [("ann", 1)]


def test_a_view_and_its_stores_go_back_to_before_a_mistake() -> None:
    store = MemoryStore()
    app = hr.App("shop")
    schema = "id bigint, note string"
    app.view("orders", app.captured("shop.main.orders", schema=schema, key="id"), store=store)
    with scripted_log() as log:
        topic = log.log.ensure_topic(app.topics["shop.main.orders"])
        log.write(topic.name, *(change("c", id) for id in range(20)))
        log.run(app, spark=spark.shared())
        before = log.log.head()
        log.write(topic.name, *(change("d", id) for id in range(15)))
        log.write(topic.name, change("c", 99))
        log.run(app, spark=spark.shared())
        assert ids_in(store) == [*range(15, 20), 99]

        found = hr.rebuild(app, "orders", log.log, until=before, switch=True, spark=spark.shared())
        assert found.switched
        assert (found.diff.added, found.diff.removed) == (15, 1)
        assert ids_in(store) == list(range(20))

        # What undoes it comes after the mistake, and the next run reads both.
        log.write(topic.name, *(change("c", id) for id in range(15)))
        results = log.run(app, spark=spark.shared())
        assert [row["id"] for row in results.view("orders")] == [*range(20), 99]
        assert ids_in(store) == [*range(20), 99]


def change(op: str, id: int) -> dict[str, Any]:
    row = {"id": id, "note": f"order {id}"}
    return {
        "key": f'{{"id": {id}}}',
        "before": row if op == "d" else None,
        "after": None if op == "d" else row,
        "source": {"ts_us": 1_767_268_800_000_000 + id},
        "op": op,
        "ts_ms": 1_767_268_800_000,
    }


def ids_in(store: MemoryStore) -> list[int]:
    columns = pa.schema([("id", pa.int64())])
    with store.live(StoredView("shop", "orders", columns, ("id",), Path("/nowhere"))) as live:
        return [row["id"] for row in rows_of(live)]
