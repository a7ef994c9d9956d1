"""The history of a view's rows: a row of the table for each time in which a row was valid.

This is a slowly changing dimension of type 2. `valid_from` is null for a row that was there before
the history begins, and `valid_to` for one that is valid now.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa

from headrace.schema.row_hashes import row_hashes
from headrace.store.changelog import key_texts
from headrace.store.contract import Steps

FROM, TO, CURRENT = "valid_from", "valid_to", "is_current"
MOMENT = pa.timestamp("us", "UTC")
COLUMNS = (pa.field(FROM, MOMENT), pa.field(TO, MOMENT), pa.field(CURRENT, pa.bool_()))
CLOSES = "_headrace_closes"
"""The column of a merge's source that marks the end of a row, rather than a row to insert."""


def begun(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with which a history begins."""
    count = batch.num_rows
    nulls = pa.nulls(count, MOMENT)
    values = [*batch.columns, nulls, nulls, pa.repeat(True, count)]
    return pa.RecordBatch.from_arrays(values, schema=pa.schema([*batch.schema, *COLUMNS]))


def merged(steps: Steps, current: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The rows to insert and the current rows to close, given those that steps may change.

    A step that leaves its row as it was is not in the history: a version of a view is built from
    rows that may show some of the changes after it already.
    """
    current = current.select(steps.rows.column_names)
    names = key_texts(current.select(list(key))).to_pylist() if current.num_rows else []
    hashes = dict(zip(names, row_hashes(current).tolist(), strict=True))
    all_rows = pa.concat_tables([steps.rows, current])
    places = {name: steps.rows.num_rows + place for place, name in enumerate(names)}
    valid: dict[str, tuple[int, int, datetime | None, bool]] = {
        name: (places[name], hashes[name], None, True) for name in names
    }
    taken: list[int] = []
    times: list[tuple[Any, Any, bool, bool]] = []

    def end(name: str, at: datetime) -> None:
        place, _, since, stored = valid.pop(name)
        taken.append(place)
        times.append((None, at, False, True) if stored else (since, at, False, False))

    facts = zip(
        steps.keys.to_pylist(),
        row_hashes(steps.rows).tolist(),
        steps.times.to_pylist(),
        steps.deleted.to_pylist(),
        strict=True,
    )
    for place, (name, value, at, deleted) in enumerate(facts):
        there = valid.get(name)
        if there is not None and not deleted and there[1] == value:
            continue
        if there is not None:
            end(name, at)
        if not deleted:
            valid[name] = (place, value, at, False)
    for place, _, since, stored in valid.values():
        if not stored:
            taken.append(place)
            times.append((since, None, True, False))
    made = all_rows.take(pa.array(taken, pa.int64()))
    columns = list(zip(*times, strict=True)) or [(), (), (), ()]
    for field, values in zip((*COLUMNS, pa.field(CLOSES, pa.bool_())), columns, strict=True):
        made = made.append_column(field, pa.array(values, field.type))
    return made
