"""Records of a changelog as changes of a view: the last one of each key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log import Batch, Log, Offset
from headrace.store.changelog import key_texts
from headrace.store.contract import Changes, Steps, StorePosition

ROWS_AT_ONCE = 50_000
"""Records of the changelog that are applied at once, at most."""
BYTES_AT_ONCE = 64 << 20

_KEY, _BEFORE, _AFTER, _TIME = "key", "before", "after", "ts_ms"
_MOMENT = pa.timestamp("us", "UTC")


class Unusable(Exception):
    """A record that says too little to be applied, so that the view has to be built again."""


@dataclass(frozen=True)
class Records:
    """Records of a changelog in order, and the next offset after them."""

    batches: tuple[Batch, ...]
    end: int

    @property
    def rows(self) -> int:
        return sum(map(len, self.batches))

    @property
    def moment(self) -> int:
        """The time of the newest record, in microseconds since the epoch."""
        return self.batches[-1].timestamp


def read_records(log: Log, topic: str, offset: int, end: int) -> Records:
    """The records from an offset on, as many as are applied at once. Whole commits of the log."""
    found: list[Batch] = []
    rows = size = 0
    # A reader of the log gives what it has asked for, so it is left early.
    for batch in log.read(topic, start=Offset(offset), stop=Offset(end), partitions=[0]):
        found.append(batch)
        rows += len(batch)
        size += batch.data.nbytes
        if rows >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            return Records(tuple(found), int(batch.offsets[-1]) + 1)
    return Records(tuple(found), end)


def collapsed(
    records: Records, columns: pa.Schema, key: tuple[str, ...], to: StorePosition
) -> Changes:
    """The last change of each key. Raises `Unusable` if a record is not one of a changelog."""
    if any(b.tombstones is not None and b.tombstones.any() for b in records.batches):
        raise Unusable("a tombstone in its changelog, which headrace does not write")
    wanted = [_KEY, _BEFORE, _AFTER]
    if not records.batches:
        return _changes(columns.empty_table(), columns.empty_table().select(list(key)), [], [], to)
    table = pa.Table.from_batches([batch.data.select(wanted) for batch in records.batches])
    offsets = np.concatenate([batch.offsets for batch in records.batches])
    numbered = pa.table({"key": table[_KEY], "place": np.arange(len(offsets))})
    by_key = numbered.group_by("key").aggregate([("place", "max")])
    last = np.sort(by_key["place_max"].to_numpy())
    table, offsets = table.take(last), offsets[last]
    kept = pc.is_valid(table[_AFTER]).to_numpy()
    there, gone = np.flatnonzero(kept), np.flatnonzero(~kept)
    before = table[_BEFORE].take(gone)
    if before.null_count:
        raise Unusable("a deletion in its changelog that does not say what was deleted")
    order = np.concatenate([there, gone])
    return _changes(
        _flat(table[_AFTER].take(there), columns),
        _flat(before, columns).select(list(key)),
        table[_KEY].take(order).combine_chunks(),
        offsets[order] + 1,
        to,
    )


def steps_of(records: Records, columns: pa.Schema) -> Steps:
    """Every change of records that could be collapsed, in order."""
    batches = [batch.data.select([_KEY, _BEFORE, _AFTER, _TIME]) for batch in records.batches]
    if not batches:
        none = pa.array([], pa.string())
        empty = columns.empty_table()
        return Steps(empty, none, none.cast(_MOMENT), none.cast(pa.bool_()))
    table = pa.Table.from_batches(batches)
    deleted = pc.is_null(table[_AFTER]).combine_chunks()
    both = pa.concat_tables([_flat(table[_AFTER], columns), _flat(table[_BEFORE], columns)])
    places = np.arange(table.num_rows) + deleted.to_numpy(zero_copy_only=False) * table.num_rows
    micros = pc.multiply(table[_TIME], 1_000).combine_chunks()
    return Steps(both.take(places), table[_KEY].combine_chunks(), micros.cast(_MOMENT), deleted)


def _changes(
    rows: pa.Table, gone: pa.Table, keys: object, versions: object, to: StorePosition
) -> Changes:
    return Changes(rows, gone, pa.array(keys, pa.string()), pa.array(versions, pa.int64()), to)


def _flat(structs: pa.ChunkedArray, columns: pa.Schema) -> pa.Table:
    """The fields of structs as the columns of a table."""
    whole = structs.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    fields = dict(zip((f.name for f in whole.type), whole.flatten(), strict=True))
    return pa.Table.from_arrays([fields[f.name] for f in columns], schema=columns)


def as_parts(
    rows: Iterator[pa.Table], key: tuple[str, ...], position: StorePosition
) -> Iterator[Changes]:
    """Rows of a snapshot as parts to fill a store with. Each is older than any change after it."""
    for table in rows:
        names = table.select(list(key))
        versions = pa.array(np.full(table.num_rows, position.offset), pa.int64())
        yield Changes(table, names.slice(0, 0), key_texts(names), versions, position)
