"""Single values in JSON: how each Python type is written, and what is accepted when it is read.

A stored text has one form, so that Spark reads it as Python does: `columns` has the same patterns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from headrace.clock import FIRST_MOMENT, LAST_MOMENT, to_micros

Turn = Callable[[Any], Any]

DECIMAL = r"^-?[0-9]{1,20}(\.[0-9]{1,18})?$(?!\n)"
"""A decimal number that fits decimal(38,18), without an exponent."""

DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$(?!\n)"

MOMENT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{6})?"
    r"(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?$(?!\n)"
)
"""A date and time. Without an offset it counts as UTC in columns."""

LONG = 1 << 63


class Mismatch(ValueError):
    """A value that is not of its type; the message says which and where."""


def exactly(kind: type) -> Turn:
    """Accept only values of a type."""

    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise Mismatch(f"{value!r} is not of type {kind.__name__}")
        return value

    return check


def _int(value: Any) -> int:
    if type(value) is not int or not -LONG <= value < LONG:
        raise Mismatch(f"{value!r} is not an int of 64 bits")
    return value


def _float(value: Any) -> float:
    try:
        if type(value) in (float, int) and math.isfinite(made := float(value)):
            return made
    except OverflowError:
        pass
    raise Mismatch(f"{value!r} is not a finite float")


def is_text(value: object) -> bool:
    """True for text that is not empty and can be stored."""
    return isinstance(value, str) and value != "" and not _has_half(value)


def _has_half(text: str) -> bool:
    """True if a text has half a character, which UTF-8 cannot store."""
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Mismatch(f"{value!r} is not of type str")
    if _has_half(value):
        raise Mismatch(f"{value!r} has half a character, which UTF-8 cannot store")
    return value


def _decimal_text(value: Any) -> str:
    if isinstance(value, Decimal) and value.is_finite():
        text = format(value, "f")
        if re.match(DECIMAL, text):
            return text
    raise Mismatch(f"{value!r} is not a Decimal of up to 20 digits and 18 decimal places")


def _moment_text(value: Any) -> str:
    text: str = exactly(datetime)(value).isoformat()
    _moment(text)
    return text


def _moment(text: str) -> datetime:
    made = datetime.fromisoformat(text)
    if not FIRST_MOMENT <= to_micros(made) <= LAST_MOMENT:
        raise ValueError(text)
    return made


def _from_text(make: Callable[[str], Any], pattern: str, what: str) -> Turn:
    form = re.compile(pattern)

    def read(value: Any) -> Any:
        try:
            if isinstance(value, str) and form.match(value):
                return make(value)
        except (ValueError, OverflowError):
            pass
        raise Mismatch(f"{value!r} is not {what}")

    return read


SCALARS: dict[Any, tuple[Turn, Turn]] = {
    str: (_text, _text),
    int: (_int, _int),
    bool: (exactly(bool), exactly(bool)),
    float: (_float, _float),
    Decimal: (_decimal_text, _from_text(Decimal, DECIMAL, "a decimal number as text")),
    date: (
        lambda value: exactly(date)(value).isoformat(),
        _from_text(date.fromisoformat, DATE, "a date"),
    ),
    datetime: (_moment_text, _from_text(_moment, MOMENT, "a date and time")),
}
"""How a value of each type is written and read."""
