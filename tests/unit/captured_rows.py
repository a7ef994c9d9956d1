"""Topics of captured changes, written by hand: what a capture would write."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.cdc.envelope import EVENT_TIME, KEY, envelope_schema
from headrace.log import Log
from headrace.log.roles import Flags

MOMENT = 1_700_000_000_000_000

Row = dict[str, Any]


@dataclass
class Captured:
    """The topic of a table, and the changes that are to be written to it."""

    log: Log
    columns: pa.Schema
    table: str = "orders"
    key: str = "id"
    connector: str = "sqlite"
    schema: str = "main"
    database: str = "shop"
    _rows: list[Row] = field(default_factory=list)
    _dead: list[bool] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return f"shop.{self.schema}.{self.table}"

    def __post_init__(self) -> None:
        self.log.create_topic(
            self.topic,
            schema=envelope_schema(self.columns),
            key=KEY,
            event_time=EVENT_TIME,
            settings={"cleanup": "compact", "skew": None},
        )

    def change(
        self,
        before: Row | None,
        after: Row | None,
        *,
        tx: str = "1",
        at: int = MOMENT,
        order: int | None = None,
        **source: Any,
    ) -> None:
        """A change of a row, and a tombstone after a delete."""
        row = after or before or {}
        key = json.dumps({self.key: row.get(self.key)}, default=str)
        op = source.pop("op", "d" if after is None else "c" if before is None else "u")
        origin = {
            "connector": self.connector,
            "name": "shop",
            "db": self.database,
            "schema": self.schema,
            "table": self.table,
            "tx": tx,
            "order": order,
            "ts_us": at,
            **source,
        }
        change = {"key": key, "before": before, "after": after, "source": origin, "op": op}
        self._rows.append(change)
        self._dead.append(False)
        if op == "d":
            self._rows.append({"key": key, "source": origin, "op": op})
            self._dead.append(True)

    def write(self) -> None:
        """Write the changes in one commit."""
        write_together(self.log, self)

    def take(self) -> tuple[pa.Table, Flags]:
        """The changes that are to be written, and which of them are tombstones."""
        rows = pa.Table.from_pylist(self._rows, schema=envelope_schema(self.columns))
        dead = np.array(self._dead)
        self._rows, self._dead = [], []
        return rows, dead


def write_together(log: Log, *tables: Captured) -> None:
    """Write the changes of several tables in one commit."""
    with log.producer() as producer, producer.transaction() as transaction:
        for table in tables:
            rows, dead = table.take()
            transaction.append(table.topic, rows, tombstones=dead)
