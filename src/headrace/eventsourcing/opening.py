"""Stored events with their personal fields opened, as rows and as whole batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UnreadableEvent
from headrace.eventsourcing.codec import parsed, text_of
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.personal import MARK, open_all, open_metadata
from headrace.eventsourcing.stored import event_place

PLACES = ("aggregate", "version", "type")
"""The columns that say where an event stands."""

UNREADABLE = ""
"""The data of an event that cannot be opened: no JSON, so whoever parses it refuses the event."""

_SEALED = text_of({MARK: 0})[:-2]


@dataclass(frozen=True)
class Opening:
    """Opens the personal fields of stored events with a key store."""

    keys: KeyStore

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A stored event opened, or `UnreadableEvent`."""
        return self.rows([row])[0]

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Stored events opened, or `UnreadableEvent` if one of them cannot be."""
        found = [dict(row) for row in rows]
        sealed = [row for row in found if row["data"].startswith(_SEALED)]
        stored = [(parsed(row["data"]), event_place(row)) for row in sealed]
        for row, data in zip(sealed, open_all(stored, self.keys), strict=True):
            row["data"] = text_of(data)
        for row in found:
            if metadata := row.get("metadata"):
                row["metadata"] = open_metadata(dict(metadata), event_place(row), self.keys)
        return found

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Stored events opened. One that cannot be opened has the data `UNREADABLE`."""
        names = [name for name in (*PLACES, "data", "metadata") if name in batch.schema.names]
        if not _has_sealed(batch):
            return batch
        stored = batch.select(names).to_pylist()
        try:
            rows = self.rows(stored)
        except UnreadableEvent:
            rows = [self._row(row) for row in stored]
        for name in ("data", "metadata"):
            if name in names:
                field = batch.schema.field(name)
                values = pa.array([row[name] for row in rows], field.type)
                batch = batch.set_column(batch.schema.names.index(name), field, values)
        return batch

    def _row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.row(row)
        except UnreadableEvent:
            return {**row, "data": UNREADABLE}


def _has_sealed(batch: pa.RecordBatch) -> bool:
    if pc.any(pc.starts_with(batch.column("data"), _SEALED), min_count=0).as_py():
        return True
    if "metadata" not in batch.schema.names:
        return False
    names = batch.column("metadata").keys
    return bool(pc.any(pc.equal(names, MARK), min_count=0).as_py())
