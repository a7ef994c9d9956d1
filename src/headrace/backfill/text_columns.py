"""Columns of texts, as CSV has them, converted to the types of a topic."""

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.compute as pc

_ZONED = r"(Z|[+-]\d\d(:?\d\d)?)$"
_DATED = r"^\d{4}-\d\d-\d\d[ T]"


def from_texts(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of texts as another type; raises `ValueError` if one does not fit it."""
    if pa.types.is_string(kind):
        return column
    if pa.types.is_binary(kind):
        values = column.to_pylist()
        decoded = [None if v is None else base64.b64decode(v, validate=True) for v in values]
        return pa.array(decoded, kind)
    texts = pc.utf8_trim_whitespace(column)
    if not pa.types.is_timestamp(kind):
        return texts.cast(kind)
    return _times(texts, kind) if kind.tz is None else _moments(texts, kind)


def _moments(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times with a zone. Those without one are in UTC, as in JSON."""
    zoned = pc.and_(
        pc.match_substring_regex(texts, _DATED), pc.match_substring_regex(texts, _ZONED)
    )
    none = pa.scalar(None, pa.string())
    plain = _times(pc.if_else(zoned, none, texts), pa.timestamp(kind.unit))
    return pc.coalesce(_times(pc.if_else(zoned, texts, none), kind), plain.cast(kind))


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        # Some programs write nine decimals, of which the last three have to be zeros.
        return texts.cast(pa.timestamp("ns", kind.tz)).cast(kind)
