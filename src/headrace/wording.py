"""Numbers, sizes, durations and times as people read them: in a terminal, a page or a sentence."""

from __future__ import annotations

from headrace.clock import to_text

_UNITS = ("KiB", "MiB", "GiB", "TiB")


def count(number: int | None) -> str:
    """A number with separators, or a dash."""
    return "-" if number is None else f"{number:,}"


def many(number: int, thing: str) -> str:
    """A number of things: 1 record, 2 records."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def size(number: int | None) -> str:
    """A number of bytes with a binary unit, or a dash."""
    if number is None:
        return "-"
    if number < 1024:
        return f"{number} B"
    power = min(4, max(1, (number.bit_length() - 1) // 10))
    return f"{number / 1024**power:.1f} {_UNITS[power - 1]}"


def span(seconds: float) -> str:
    """A duration, rounded for people."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, by, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / by:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def when(micros: int | None) -> str:
    """A time in UTC to the second, or a dash."""
    return "-" if micros is None else to_text(micros)


def lag_text(lag: int | None, unit: str) -> str:
    """A lag for people: bytes with their unit, other things counted."""
    if lag is None:
        return "-"
    return size(lag) if unit == "bytes" else many(lag, unit.removesuffix("s") or "change")
