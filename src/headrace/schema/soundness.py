"""Validation of Arrow data from outside.

Arrow trusts its buffers. Invalid UTF-8, offsets that decrease or leave their buffer, and decimals
with too many digits would be stored, and then fail or crash every reader.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def first_unsound(data: pa.RecordBatch | pa.Table) -> tuple[str, str] | None:
    """The first invalid column and the reason, or None if all are valid."""
    for name, column in zip(data.schema.names, data.columns, strict=True):
        if len(column) != data.num_rows:
            return name, f"it has {len(column)} values for {data.num_rows} rows"
        try:
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                _check(chunk)
        except (pa.ArrowException, ValueError) as error:
            return name, str(error).splitlines()[0]
    return None


def _check(column: pa.Array) -> None:
    if pa.types.is_binary(column.type):
        _check_bytes(column)
    elif pa.types.is_string(column.type):
        # Arrow checks strings one by one, ten times slower than a check of all their bytes at once.
        texts = column.view(pa.binary())
        _check_bytes(texts)
        if not _is_ascii(texts):
            column.validate(full=True)
    elif pa.types.is_struct(column.type):
        column.validate()  # the lengths of its columns
        for place in range(column.type.num_fields):
            _check(column.field(place))
    else:
        column.validate(full=True)


def _check_bytes(column: pa.Array) -> None:
    """Check a column of bytes. NumPy compares offsets three times faster than Arrow."""
    column.validate()  # the sizes of its buffers, and the first and the last offset
    validity, ends, _ = column.buffers()
    if validity is None and ends is not None and not column.null_count:
        offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
        if (offsets[:-1] <= offsets[1:]).all():
            return
    column.validate(full=True)


def _is_ascii(texts: pa.Array) -> bool:
    _, ends, data = texts.buffers()
    if not len(texts) or data is None:
        return True
    offsets = np.frombuffer(ends, np.int32)
    first, last = offsets[texts.offset], offsets[texts.offset + len(texts)]
    return bool(np.frombuffer(data, np.int8)[first:last].min(initial=0) >= 0)
