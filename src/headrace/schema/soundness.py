"""Arrow data from elsewhere, checked to be what it says.

Arrow reads its buffers without looking: text that is not UTF-8, offsets that run backward or out of
their buffer and decimals of too many digits would be stored, and fail or crash whoever reads them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def first_unsound(data: pa.RecordBatch | pa.Table) -> tuple[str, str] | None:
    """The first column that is not what it says, and why; None if all are."""
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
    if not pa.types.is_string(column.type):
        column.validate(full=True)
        return
    # Arrow looks at texts one by one, which takes ten times as long as all of their bytes at once.
    texts = column.view(pa.binary())
    texts.validate(full=True)
    if not _is_ascii(texts):
        column.validate(full=True)


def _is_ascii(texts: pa.Array) -> bool:
    _, ends, data = texts.buffers()
    if not len(texts) or data is None:
        return True
    offsets = np.frombuffer(ends, np.int32)
    first, last = offsets[texts.offset], offsets[texts.offset + len(texts)]
    return bool(np.frombuffer(data, np.int8)[first:last].min(initial=0) >= 0)
