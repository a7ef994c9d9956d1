"""Dead letters: records that no step can count, each with its place in the log and the reason.

Whoever finds such a record builds its letter here, so that a letter has the same shape wherever the
record failed: in the embedded log, on Kafka, in a table, or in a user's function.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

DEAD_LETTER = pa.schema(
    [
        ("step", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("commit_number", pa.int64()),
        ("appended", pa.timestamp("us", tz="UTC")),
        ("reason", pa.string()),
        ("row", pa.string()),
    ]
)
"""The columns of a dead letter; `row` is the record as JSON."""

UNREADABLE = "does not decode"
"""The reason for bytes that are not a row. More may follow: `is_unreadable` knows."""
NO_TIME = "no event time"
AHEAD = "ahead of the clock"
OUTSIDE = "outside of the years 1 to 9999"
NO_KEY = "no key"

MILLIS = " read as seconds; milliseconds?"
LIKELY_MILLIS = (10**12, 5 * 10**12 - 1)
"""Seconds that are more likely milliseconds of the years 2001 to 2128."""


def dead_letters(count: int, **columns: Any) -> pa.Table:
    """Build letters from the columns of the schema: an array each, or one value for all."""
    made = []
    for field in DEAD_LETTER:
        given = columns[field.name]
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        if isinstance(given, pa.Array):
            made.append(given.cast(field.type))
        elif hasattr(given, "__len__") and not isinstance(given, str):
            made.append(pa.array(given, field.type))
        else:
            made.append(pa.array([given] * count, field.type))
    return pa.Table.from_arrays(made, schema=DEAD_LETTER)


def misread(reason: str, micros: int) -> str:
    """The reason why an event time is not valid, and its likely cause."""
    seconds = micros // 1_000_000
    low, high = LIKELY_MILLIS
    return f"{reason}: {seconds}{MILLIS}" if low <= seconds <= high else reason


def is_unreadable(reason: str) -> bool:
    """True if the bytes of a record are not a row."""
    return reason.startswith(UNREADABLE)


def row_text(row: Mapping[str, Any]) -> str:
    """A row as people read it. Bytes that are no text are written as hex."""
    return json.dumps(row, default=_readable, ensure_ascii=False)


def bytes_text(value: bytes | None, *, readable: bool) -> str | None:
    """A record as text, so that none is lost: if it could not be read, an object of its bytes."""
    if value is None:
        return None
    try:
        return value.decode() if readable else _object("value", value.decode())
    except UnicodeDecodeError:
        return _object("bytes", value.hex())


def _object(name: str, value: str) -> str:
    """An object of one value, written as Spark writes it."""
    return json.dumps({name: value}, ensure_ascii=False, separators=(",", ":"))


def _readable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
