"""The Arrow type of each type of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}
"""Types with an Arrow type of their own. All others, beside decimals and arrays, are text."""

TYPE: Final = b"postgresql"
"""The key of a field's metadata that has the column's type as SQL writes it."""

TABLE: Final = b"table"

_HEADER = 4  # of a typmod


@dataclass(frozen=True)
class _Type:
    name: str
    kind: str
    base: int
    base_modifier: int
    element: int


class Types:
    """The types of a database. `query` runs SQL."""

    def __init__(self, query: Callable[..., list[tuple[Any, ...]]]) -> None:
        self._query = query
        self._known: dict[int, _Type] = {}
        self._names: dict[tuple[int, int], str] = {}

    def fields(self, table: str, columns: Iterable[tuple[str, int, int]]) -> tuple[pa.Field, ...]:
        """The fields of columns, each a name, the number of a type, and its modifier."""
        columns = list(columns)
        self._load({number for _, number, _ in columns})
        self._load_names({(number, modifier) for _, number, modifier in columns})
        return tuple(
            pa.field(
                name,
                self._arrow(number, modifier),
                metadata={TYPE: self._names.get((number, modifier), "text"), TABLE: table},
            )
            for name, number, modifier in columns
        )

    def _arrow(self, number: int, modifier: int) -> pa.DataType:
        found = self._known.get(number)
        if found is None:
            return pa.string()
        if found.kind == "d":
            return self._arrow(found.base, found.base_modifier if modifier < 0 else modifier)
        if found.element:
            # A box is the one type whose arrays are not separated by commas.
            element = self._known.get(found.element)
            box = element is not None and element.name == "box"
            return pa.string() if box else pa.list_(self._arrow(found.element, modifier))
        if found.name == "numeric":
            return _decimal(modifier)
        return _SIMPLE.get(found.name, pa.string())

    def _load(self, numbers: set[int]) -> None:
        """Look up types, and those that they are made of."""
        while wanted := [number for number in numbers if number and number not in self._known]:
            rows = self._query(
                "SELECT oid::int8, typname, typtype, typbasetype::int8, typtypmod, "
                "CASE WHEN typlen = -1 AND typsubscript = 'array_subscript_handler'::regproc "
                "THEN typelem ELSE 0 END::int8 FROM pg_type WHERE oid = ANY(%s::oid[])",
                wanted,
            )
            for number, name, kind, base, base_modifier, element in rows:
                self._known[number] = _Type(name, kind, base, base_modifier, element)
            missing = set(wanted) - self._known.keys()
            numbers = {
                part
                for number in wanted
                if number not in missing
                for part in (self._known[number].base, self._known[number].element)
            }

    def _load_names(self, pairs: set[tuple[int, int]]) -> None:
        wanted = [pair for pair in pairs if pair not in self._names]
        if wanted:
            rows = self._query(
                "SELECT t::int8, m, format_type(t::oid, m) FROM unnest(%s::int8[], %s::int4[]) "
                "AS u (t, m)",
                [number for number, _ in wanted],
                [modifier for _, modifier in wanted],
            )
            self._names |= {(number, modifier): name for number, modifier, name in rows}


def _decimal(modifier: int) -> pa.DataType:
    """The type of a numeric: text if it has no precision, or one that no decimal has."""
    if modifier < _HEADER:
        return pa.string()
    precision = (modifier - _HEADER) >> 16 & 0xFFFF
    scale = ((modifier - _HEADER & 0x7FF) ^ 1024) - 1024
    fits = precision <= 38 and 0 <= scale <= precision
    return pa.decimal128(precision, scale) if fits else pa.string()
