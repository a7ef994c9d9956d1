"""The tables that are compared: each gives its rows in the same columns, all or some of them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import StoreError
from headrace.log import Batch, Log, Offset
from headrace.plan import metadata
from headrace.schema.row_hashes import Hashes, column_hashes, row_hashes
from headrace.store.contract import StoreTable
from headrace.store.sqlite.difference import Version
from headrace.store.sqlite.values import fill_temporary, quoted, tables_from

_ROWS_AT_ONCE = 65_536

Offsets = Sequence[int]
"""The next offset of each partition of a topic."""


class Side(ABC):
    """One of two tables that should have the same rows, in columns that both have."""

    def __init__(self, columns: pa.Schema, key: Sequence[str]) -> None:
        self.columns = columns
        self.key = list(key)
        self.key_columns = pa.schema([columns.field(name) for name in key])

    @abstractmethod
    def rows(self) -> Iterator[pa.RecordBatch]:
        """Every row, in any order."""

    def find(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows with these keys, those that are there."""
        wanted = row_hashes(keys)
        for batch in self.rows():
            there = np.isin(row_hashes(batch.select(self.key)), wanted)
            if there.any():
                yield batch.filter(pa.array(there))


class ViewSide(Side):
    """A view in SQLite, on a connection that has a snapshot of it."""

    def __init__(
        self, db: apsw.Connection, version: Version, columns: pa.Schema, key: Sequence[str]
    ) -> None:
        super().__init__(columns, key)
        self._db = db
        self._version = version
        named = [metadata.REVISION if name == "revision" else name for name in columns.names]
        listed = ", ".join(f"n.{quoted(name)}" for name in named)
        self._select = f"SELECT {listed} FROM"
        self._rows = f"{version.table} n"

    def rows(self) -> Iterator[pa.RecordBatch]:
        yield from self._made(f"{self._select} {self._rows} WHERE {self._version.seen('n')}")

    def find(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        fill_temporary(self._db, "temp.wanted", keys)
        match = " AND ".join(f"n.{quoted(name)} IS k.{quoted(name)}" for name in self.key)
        yield from self._made(
            f"{self._select} temp.wanted k CROSS JOIN {self._rows} ON {match} "
            f"WHERE {self._version.seen('n')}"
        )

    def _made(self, sql: str) -> Iterator[pa.RecordBatch]:
        for table in tables_from(self._db.execute(sql), self.columns):
            yield from table.to_batches()


class StoreSide(Side):
    """A view in a store."""

    def __init__(
        self, table: StoreTable, address: str, columns: pa.Schema, key: Sequence[str]
    ) -> None:
        super().__init__(columns, key)
        self._table = table
        self._address = address

    def rows(self) -> Iterator[pa.RecordBatch]:
        yield from self._conformed(self._table.read())

    def find(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from self._conformed(self._table.find(keys))

    def _conformed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield conformed(batch, self.columns, self._address)


class TopicSide(Side):
    """The rows that a topic of captured changes makes, from some offsets up to others."""

    def __init__(
        self,
        log: Log,
        topic: str,
        start: Offsets | None,
        stop: Offsets,
        columns: pa.Schema,
        key: Sequence[str],
    ) -> None:
        super().__init__(columns, key)
        self._log = log
        self._topic = topic
        self._start = start
        self._stop = stop
        self._kept: np.ndarray[Any, np.dtype[np.bool_]] | None = None

    def rows(self) -> Iterator[pa.RecordBatch]:
        if self._kept is None:
            self._kept = self._last_of_each_key()
        place = 0
        waiting: list[pa.RecordBatch] = []
        for batch in records(self._log, self._topic, self._start, self._stop, ["after"]):
            kept = self._kept[place : place + len(batch)]
            place += len(batch)
            if not kept.any():
                continue
            data = batch.data if kept.all() else batch.data.filter(pa.array(kept))
            waiting.append(self._row(data))
            if sum(map(len, waiting)) >= _ROWS_AT_ONCE:
                yield from _joined(waiting)
                waiting = []
        yield from _joined(waiting)

    def _row(self, data: pa.RecordBatch) -> pa.RecordBatch:
        after = data.column("after")
        names = {field.name for field in after.type}
        fields = dict(zip((f.name for f in after.type), after.flatten(), strict=True))
        columns = [
            fields[f.name] if f.name in names else pa.nulls(len(data), f.type) for f in self.columns
        ]
        made = pa.RecordBatch.from_arrays(columns, names=self.columns.names)
        return conformed(made, self.columns, f"topic {self._topic}")

    def _last_of_each_key(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """True for each record that is the last of its key, and does not delete it."""
        hashes, alive, commits = [], [], []
        for batch in records(self._log, self._topic, self._start, self._stop, ["key", "op"]):
            hashes.append(column_hashes(batch.data.column("key")))
            there = pc.fill_null(pc.not_equal(batch.data.column("op"), "d"), True)
            kept = there.to_numpy(zero_copy_only=False)
            alive.append(kept if batch.tombstones is None else kept & ~batch.tombstones)
            commits.append(np.full(len(batch), batch.commit or 0))
        if not hashes:
            return np.zeros(0, np.bool_)
        keys = np.concatenate(hashes)
        # A key stays in its partition, unless partitions were added: then the later commit counts.
        order = np.lexsort((np.arange(len(keys)), np.concatenate(commits), keys))
        last = order[np.append(keys[order][1:] != keys[order][:-1], True)]
        found = np.zeros(len(keys), np.bool_)
        found[last] = np.concatenate(alive)[last]
        return found


def records(
    log: Log, topic: str, start: Offsets | None, stop: Offsets, columns: Sequence[str]
) -> Iterator[Batch]:
    """The records of a topic from some offsets, or its first ones, up to others."""
    for partition, end in enumerate(stop):
        known = start is not None and partition < len(start)
        first = start[partition] if known and start is not None else 0
        oldest = log.topic(topic).partitions[partition].first
        if max(first, oldest) < end:
            begin, until = Offset(max(first, oldest)), Offset(end)
            yield from log.read(
                topic, start=begin, stop=until, partitions=[partition], columns=columns
            )


def changed_keys(
    log: Log,
    topic: str,
    start: Offsets | None,
    stop: Offsets,
    keys: pa.Schema,
    *more: str,
) -> Iterator[tuple[Batch, pa.Table]]:
    """The key of each record of a topic in Debezium's envelope, and `more` columns of the record.

    Tombstones are left out.
    """
    for batch in records(log, topic, start, stop, ["key", "before", "after", *more]):
        if batch.tombstones is not None and batch.tombstones.any():
            kept = ~batch.tombstones
            if not kept.any():
                continue
            batch = _without(batch, kept)
        yield batch, keys_of(batch.data, keys)


def keys_of(data: pa.RecordBatch | pa.Table, keys: pa.Schema) -> pa.Table:
    """The key columns of records in Debezium's envelope."""
    before, after = (_combined(data.column(name)) for name in ("before", "after"))
    columns = [
        pc.if_else(pc.is_valid(after), pc.struct_field(after, f.name),
                   pc.struct_field(before, f.name)).cast(f.type)
        for f in keys
    ]  # fmt: skip
    neither = pc.and_(pc.is_null(before), pc.is_null(after))
    if pc.any(neither).as_py():
        # A record that is too large to have its row still has its key.
        texts = _combined(data.column("key")).to_pylist()
        known = [json.loads(text or "{}") for text in texts]
        columns = [
            pc.if_else(neither, pa.array([row.get(f.name) for row in known]).cast(f.type), column)
            for f, column in zip(keys, columns, strict=True)
        ]
    return pa.Table.from_arrays(columns, schema=keys)


def moved_keys(log: Log, topic: str, start: Offsets, stop: Offsets, keys: pa.Schema) -> Hashes:
    """The hashes of all keys that changed between offsets of a topic."""
    found = [row_hashes(table) for _, table in changed_keys(log, topic, start, stop, keys)]
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *found]))


def ends_of(log: Log, topic: str) -> list[int]:
    """The next offset of each partition of a topic now."""
    return [state.end for state in log.topic(topic).partitions]


def conformed(batch: pa.RecordBatch, columns: pa.Schema, where: str) -> pa.RecordBatch:
    """The same rows in these columns and types."""
    if batch.schema.equals(columns):
        return batch
    arrays = []
    for field in columns:
        column = batch.column(field.name)
        try:
            arrays.append(column if column.type.equals(field.type) else column.cast(field.type))
        except pa.ArrowException as error:
            raise StoreError(
                f"Column {field.name!r} of {where} has a value that is not {field.type}: {error}",
                hint="Something else has written to it; build it again",
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _without(batch: Batch, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> Batch:
    data = batch.data.filter(pa.array(kept))
    return Batch(
        batch.topic, batch.partition, batch.offsets[kept], data, None, batch.raw, batch.key,
        batch.timestamp, batch.commit,
    )  # fmt: skip


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Many small batches as few."""
    if batches:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def _combined(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
