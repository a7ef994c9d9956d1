"""Columns as JSON, a whole column at a time, without Python code per row for common types."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

Write = Callable[[pa.Array], list[str]]
"""Writes the values of a column as JSON, for types that Arrow writes in another way."""

_CONTROL = r"[\x00-\x1f]"
"""Control characters, which JSON escapes in a special way."""


def finite(value: float) -> float | str:
    """The number, or as text what JSON lacks: NaN and infinities, as Spark writes them."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def objects(
    columns: Sequence[pa.Array],
    names: Sequence[str],
    write: Write,
    *,
    comma: str = ",",
    colon: str = ":",
) -> pa.Array:
    """Each row as a JSON object."""
    parts: list[Any] = []
    for name, column in zip(names, columns, strict=True):
        parts += [f"{comma if parts else '{'}{json.dumps(name)}{colon}", values(column, write)]
    return pc.binary_join_element_wise(*parts, "}", "")


def values(column: pa.Array, write: Write) -> pa.Array:
    """Each value as JSON; nulls are `null`."""
    if column.null_count == len(column):
        return pa.repeat("null", len(column))
    text = _by_arrow(column, write)
    if text is None:
        text = pa.array(write(column), pa.string())
    return pc.if_else(column.is_valid(), text, "null") if column.null_count else text


def _by_arrow(column: pa.Array, write: Write) -> pa.Array | None:
    kind = column.type
    if types.is_struct(kind) and kind.num_fields:
        return objects(column.flatten(), [field.name for field in kind], write)
    if types.is_integer(kind) or types.is_boolean(kind):
        return column.cast(pa.string())
    if types.is_string(kind):
        return _texts(column, write)
    if types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
        return _moments(column)
    return None


def _texts(column: pa.Array, write: Write) -> pa.Array:
    escaped = column
    for mark in ("\\", '"'):
        escaped = pc.replace_substring(escaped, mark, f"\\{mark}")
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    odd = pc.fill_null(pc.match_substring_regex(column, _CONTROL), False)
    if not pc.any(odd).as_py():
        return quoted
    return pc.replace_with_mask(quoted, odd, pa.array(write(column.filter(odd)), pa.string()))


def _moments(column: pa.Array) -> pa.Array:
    # Many rows share a time, and formatting a time is slow, so each is formatted once. A window
    # may end after the year 9999, which Arrow can format and Python cannot.
    coded = column.dictionary_encode()
    zone = "" if column.type.tz is None else "Z"
    written = pc.strftime(coded.dictionary, f'"%Y-%m-%dT%H:%M:%S{zone}"')
    whole = pc.replace_substring_regex(written, r'\.000000(Z?")$', r"\1")
    return whole.take(coded.indices)
