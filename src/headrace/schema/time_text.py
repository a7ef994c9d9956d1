"""Texts as timestamps, whole columns at a time, as Spark casts them in UTC.

Zones are offsets such as +02:00; a text with the name of a region is null here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TIMESTAMP = pa.timestamp("us", tz="UTC")

_BLANK = r"[\x00-\x20\x7f]*"
_TIME = (
    r"[ T](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})"
    r"(?:\.(?P<fraction>\d*))?(?P<zone> ?(?:Z|(?:UTC|GMT|UT)?"
    r"(?:(?P<sign>[+-])(?:(?P<hours>\d{1,2})(?::(?P<minutes>\d{1,2}))?"
    r"|(?P<hh>\d{2})(?P<mm>\d{2})))?))?)?)?"
)
_TEXT = (
    rf"^{_BLANK}\+?(?P<year>\d{{4}})(?:-(?P<month>\d{{1,2}})(?:-(?P<day>\d{{1,2}})"
    rf"(?:{_TIME})?)?)?{_BLANK}$"
)
_MONTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_BEFORE = np.concatenate([[0], np.cumsum(_MONTHS)[:-1]])
_UNIX_DAYS = 719_162
"""The days from the year 1 to 1970."""
_FARTHEST = 18 * 60
"""The largest offset of a zone, in minutes."""

_Numbers = np.ndarray[Any, np.dtype[np.int64]]


def parsed(texts: pa.Array) -> pa.Array:
    """The timestamps of texts; null if a text is none, or not in the years 1 to 9999."""
    found = pc.extract_regex(texts, _TEXT)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    good = pc.is_valid(found).to_numpy(zero_copy_only=False)

    def part(name: str, default: int = 0) -> _Numbers:
        digits = pc.fill_null(pc.struct_field(found, name), "")
        given = pc.if_else(pc.equal(digits, ""), str(default), digits)
        numbers: _Numbers = given.cast(pa.int64()).to_numpy()
        return numbers

    year, month, day = part("year", 1), part("month", 1), part("day", 1)
    hour, minute, second = part("hour"), part("minute"), part("second")
    hours, minutes = part("hours") + part("hh"), part("minutes") + part("mm")
    fraction = pc.fill_null(pc.struct_field(found, "fraction"), "")
    digits = pc.utf8_rpad(pc.utf8_slice_codeunits(fraction, 0, 6), 6, "0")
    micros = digits.cast(pa.int64()).to_numpy()
    west = pc.fill_null(pc.equal(pc.struct_field(found, "sign"), "-"), False)
    offset = (hours * 60 + minutes) * np.where(west.to_numpy(zero_copy_only=False), -1, 1)

    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    good &= (year > 0) & (month > 0) & (month <= 12) & (day > 0)
    index = np.clip(month - 1, 0, 11)
    good &= day <= _MONTHS[index] + (leap & (month == 2))
    good &= (hour < 24) & (minute < 60) & (second < 60)
    good &= (minutes < 60) & (np.abs(offset) <= _FARTHEST)
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 - _UNIX_DAYS
    days += _BEFORE[index] + (leap & (month > 2)) + day - 1
    seconds = ((days * 24 + hour) * 60 + minute - offset) * 60 + second
    return pa.array(seconds * 1_000_000 + micros, pa.int64(), mask=~good).cast(TIMESTAMP)
