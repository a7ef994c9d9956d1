"""Changes of a field's type that mean the same in Python and in Spark.

A float as text is not among them: Java and Python write it differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.errors import InvalidDomain
from headrace.eventsourcing.columns import TEXTS, quoted
from headrace.eventsourcing.scalars import LONG

_INT = r"^[+-]?[0-9]{1,19}$(?!\n)"
_FLOAT = r"^[+-]?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?$(?!\n)"


class Retyping(NamedTuple):
    """A change of what JSON has, in Python and in SQL. None and null are refused."""

    stored: type
    """The type that JSON has before."""
    made: type
    """The type that JSON has after."""
    value: Callable[[Any], Any]
    column: Callable[[str], str]


def retyping(field: str, was: type, to: type) -> Retyping:
    """The change of a field from one type to another."""
    stored, wanted = (str if kind in TEXTS else kind for kind in (was, to))
    if stored is wanted is str:
        return Retyping(str, str, _same, _same)
    if (stored, wanted) in _KNOWN:
        return Retyping(stored, wanted, *_KNOWN[stored, wanted])
    names = [getattr(kind, "__name__", repr(kind)) for kind in (was, to)]
    raise InvalidDomain(
        f"es.retype({field!r}) cannot change {names[0]} to {names[1]}",
        hint="It changes text to a number or a truth value, and a number or a truth value to text "
        "or a wider number. For anything else use es.upcast(function)",
    )


def _same(given: Any) -> Any:
    return given


def _int(text: str) -> int | None:
    value = int(text) if re.match(_INT, text) else LONG
    return value if -LONG <= value < LONG else None


def _float(text: str) -> float | None:
    return float(text) if re.match(_FLOAT, text) else None


def _if_like(pattern: str, kind: str) -> Callable[[str], str]:
    return lambda sql: f"IF({sql} RLIKE {quoted(pattern)}, try_cast({sql} AS {kind}), NULL)"


def _cast(kind: str) -> Callable[[str], str]:
    return lambda sql: f"CAST({sql} AS {kind})"


_KNOWN: dict[tuple[type, type], tuple[Callable[[Any], Any], Callable[[str], str]]] = {
    (str, int): (_int, _if_like(_INT, "bigint")),
    (str, float): (_float, _if_like(_FLOAT, "double")),
    (str, bool): (
        {"true": True, "false": False}.get,
        lambda sql: f"CASE {sql} WHEN 'true' THEN true WHEN 'false' THEN false END",
    ),
    (int, str): (str, _cast("string")),
    (int, float): (float, _cast("double")),
    (bool, str): (lambda value: "true" if value else "false", _cast("string")),
    (bool, int): (int, _cast("bigint")),
}
