"""A shop with a captured table of products, a view that copies it, and a store in memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa

import headrace as hr
from headrace.application.verify.result import HopResult
from headrace.application.verify.verify import verify
from headrace.cdc.envelope import EVENT_TIME, envelope_schema
from headrace.log import Log
from headrace.store.contract import Store
from headrace.store.location import database_of
from tests import spark
from tests.conformance.memory_store import MemoryStore, Version

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(10, 2))])
SCHEMA = "id bigint, name string, price decimal(10, 2)"
TOPIC = "shop.main.products"
MOMENT = 1_700_000_000_000
ROWS = 50


class Shop:
    """A captured table, a view that copies it, one that counts it, and a store in memory."""

    def __init__(self, folder: Path, log: Log, *stores: Store) -> None:
        self.folder = folder
        self.log = log
        self.store = MemoryStore()
        self.app = hr.App("shop", log=log.url)
        products = self.app.captured(TOPIC, schema=SCHEMA, key="id")
        self.app.view("products", products, store=(self.store, *stores))
        self.changes = 0

    def write(self, *rows: dict[str, Any]) -> None:
        """Capture rows: those without a name are deletes."""
        envelopes = [self._change(row) for row in rows]
        table = pa.Table.from_pylist(envelopes, schema=envelope_schema(COLUMNS))
        with self.log.producer() as producer:
            producer.append(TOPIC, table)

    def _change(self, row: dict[str, Any]) -> dict[str, Any]:
        self.changes += 1
        gone = "name" not in row
        moment = MOMENT + self.changes
        return {
            "key": json.dumps({"id": row["id"]}),
            "before": row if gone else None,
            "after": None if gone else row,
            "source": {"tx": f"tx{self.changes}", "ts_us": moment * 1_000},
            "op": "d" if gone else "u",
            "ts_ms": moment,
        }

    def run(self) -> None:
        hr.run(self.app, self.log, spark=spark.shared())

    def verify(self, **options: Any) -> tuple[HopResult, HopResult]:
        log_to_view, view_to_store = self.hops(**options)
        return log_to_view, view_to_store

    def hops(self, **options: Any) -> tuple[HopResult, ...]:
        (found,) = verify(self.app, self.log, spark=spark.shared(), **options)
        return found.hops

    @property
    def version(self) -> Version:
        return self.store.shelf.live["shop", "products"]

    def damage_store(self, id: int, name: str | None) -> None:
        """Change the name in a row of the store, or remove the row."""
        rows = dict(self.version.rows)
        if name is None:
            del rows[key_of(id)]
        else:
            rows[key_of(id)] = rows[key_of(id)].set_column(1, "name", pa.array([name]))
        self.version.rows = rows

    def damage_view(self, sql: str) -> None:
        path = database_of(self.log.home, "shop")
        with contextlib.closing(apsw.Connection(str(path))) as db:
            db.execute(sql.format(table='"_headrace_side0_products"'))


def product(id: int, name: str = "chair") -> dict[str, Any]:
    return {"id": id, "name": f"{name} {id}", "price": None}


@contextlib.contextmanager
def opened_shop(folder: Path, *stores: Store) -> Iterator[Shop]:
    """A shop whose products are in its view and its store."""
    with hr.open_log(f"file:{folder}/log") as log:
        log.create_topic(TOPIC, schema=envelope_schema(COLUMNS), key="key", event_time=EVENT_TIME)
        made = Shop(folder, log, *stores)
        made.write(*(product(id) for id in range(ROWS)))
        made.write({"id": 7}, product(8, "table"))
        made.run()
        yield made


def key_of(id: int) -> str:
    return json.dumps({"id": id})


def named(result: HopResult) -> list[tuple[str, int]]:
    """The rows that differ: the kind of each difference, and the key."""
    return sorted((found.kind, found.key["id"]) for found in result.rows_differing)
