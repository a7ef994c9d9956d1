"""Readings of events by Spark's columns, as far as they are checked without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

import headrace.eventsourcing as es
from headrace.errors import InvalidDomain
from headrace.eventsourcing.reading import EventReading


@dataclass(frozen=True)
class Line:
    """A line of an order."""

    price: Decimal
    note: str | None


@dataclass(frozen=True)
class Ordered:
    """An order was placed."""

    tags: list[str] | None
    prices: dict[str, Decimal]
    lines: tuple[Line, ...]
    first: Line | None


def reading(field: str, value: Any) -> EventReading:
    """A reading of orders whose first version lacked a field."""
    ordered = es.event("ordered", Ordered, version=2, upcast={1: [es.default(field, value)]})
    return EventReading((ordered,), ("ordered",))


FITTING = [
    ("tags", None), ("tags", []), ("tags", ["a"]), ("prices", {}), ("prices", {"x": "1.5"}),
    ("lines", [{"price": "1", "note": None}]), ("first", {"price": "1"}),
]  # fmt: skip

UNFIT = [
    ("tags", 1), ("tags", [1]), ("tags", [None]), ("tags", {}), ("prices", []),
    ("prices", {"x": 1.5}), ("prices", {"x": None}), ("lines", {"price": "1"}),
    ("lines", [{"note": "n"}]), ("first", ["1"]), ("first", {"price": None}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), FITTING, ids=repr)
def test_a_constant_may_be_any_value_of_its_fields_type(field: str, value: Any) -> None:
    assert field in dict(reading(field, value).columns)


@pytest.mark.parametrize(("field", "value"), UNFIT, ids=repr)
def test_a_constant_of_another_type_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidDomain, match="An upcaster's constant does not fit"):
        _ = reading(field, value).columns
