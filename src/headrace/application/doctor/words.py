"""Numbers, times and durations in the doctor's sentences."""

from __future__ import annotations

from datetime import timedelta

from headrace.clock import to_text


def many(number: int, thing: str) -> str:
    """A number of things: 1 row, 2 rows."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def when(moment: int | None) -> str:
    """A time in UTC, to the second."""
    return "never" if moment is None else to_text(moment)


def span(micros: int) -> str:
    """A duration, rounded for people."""
    seconds = micros / 1_000_000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 or not share else f"{share:.1%}"


def code(span: timedelta) -> str:
    """A duration as it is written in a pipeline."""
    return f"td(seconds={span.total_seconds():g})"


def printable(text: str) -> str:
    """Text from outside, escaped so that it cannot control the terminal."""
    return text if text.isprintable() else repr(text)
