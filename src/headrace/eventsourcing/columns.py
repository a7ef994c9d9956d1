"""The fields of a dataclass as columns: their types, and Spark SQL that reads them from JSON.

The SQL accepts exactly what `codec` accepts. Parsing reads a text as a variant, because Spark would
turn a number into text without saying so; a number of the wrong kind makes it report the record.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn, Union

import pyarrow as pa

from headrace.clock import FIRST_MOMENT, LAST_MOMENT
from headrace.errors import InvalidDomain
from headrace.eventsourcing.scalars import DATE, DECIMAL, MOMENT, SCALARS, Mismatch, exactly
from headrace.schema.ddl import format_type


class Sql(NamedTuple):
    """An expression, and the condition under which the stored value is of its type."""

    value: str
    fits: str = "true"


@dataclass(frozen=True)
class Shape(ABC):
    """The type of a field: in JSON, and as a column."""

    optional: bool

    @property
    @abstractmethod
    def parsed(self) -> str:
        """The type that Spark parses it as."""

    @property
    @abstractmethod
    def column(self) -> pa.DataType:
        """The type of its column."""

    @property
    def json(self) -> type | None:
        """The type that JSON has; None if it is nested."""
        return None

    def stored(self, parsed: str) -> Sql:
        """The value as JSON has it: text, a number, true or false, or a nested value. Null fits."""
        return Sql(parsed)

    @abstractmethod
    def made(self, stored: str) -> Sql:
        """The value of its column, from what is stored. Null fits."""

    def plain(self, value: Any) -> Any:
        """A value of the dataclass as its column has it."""
        return value

    def whole(self, parsed: str) -> Sql:
        """The value of its column from what was parsed, null only if it may be."""
        stored = self.stored(parsed)
        made = self.made(stored.value)
        there = "true" if self.optional else f"{made.value} IS NOT NULL"
        return Sql(made.value, conjunction(stored.fits, made.fits, there))

    @abstractmethod
    def check(self, value: Any) -> None:
        """Raise `Mismatch` unless a value of JSON is of the type. Null fits."""

    def literal(self, value: Any) -> str:
        """A constant of JSON, as what is stored."""
        try:
            self.check(value)
        except Mismatch as error:
            raise InvalidDomain(
                f"An upcaster's constant does not fit: {error}", hint="Give one of the field's type"
            ) from None
        return self.constant(value)

    def constant(self, value: Any) -> str:
        """A constant that fits, as what is stored."""
        text = quoted(json.dumps({"v": value}, ensure_ascii=False))
        return self.stored(f"from_json({text}, {quoted(f'v {self.parsed}')}).v").value


@dataclass(frozen=True)
class Scalar(Shape):
    """A single value of a Python type."""

    kind: type

    @property
    def is_text(self) -> bool:
        return self.kind in TEXTS

    @property
    def json(self) -> type:
        return str if self.is_text else self.kind

    @property
    def parsed(self) -> str:
        return "variant" if self.is_text else format_type(_COLUMNS[self.kind])

    @property
    def column(self) -> pa.DataType:
        return _COLUMNS[self.kind]

    def stored(self, parsed: str) -> Sql:
        if not self.is_text:
            return Sql(parsed)
        kind = f"schema_of_variant({parsed})"
        fits = f"coalesce({kind} IN ('STRING', 'VOID'), true)"
        return Sql(f"variant_get({parsed}, '$', 'string')", fits)

    def check(self, value: Any) -> None:
        if value is not None:
            SCALARS[self.kind][1](value)

    def constant(self, value: Any) -> str:
        if value is None:
            return f"CAST(NULL AS {'string' if self.is_text else self.parsed})"
        write, read = SCALARS[self.kind]
        value = read(value)
        if self.is_text:
            return quoted(str(write(value)))
        return f"CAST({quoted(json.dumps(value))} AS {self.parsed})"

    def made(self, stored: str) -> Sql:
        if self.kind is float:
            return Sql(stored, _if_there(stored, f"abs({stored}) < double('infinity')"))
        if self.kind is Decimal:
            made = f"try_cast({stored} AS decimal(38,18))"
            return Sql(made, _if_there(stored, f"{stored} RLIKE {quoted(DECIMAL)}"))
        if self.kind is date:
            made = f"try_cast({stored} AS date)"
            good = f"{stored} RLIKE {quoted(DATE)} AND year({made}) > 0"
            return Sql(made, _if_there(stored, f"coalesce({good}, false)"))
        if self.kind is datetime:
            # Lengths 19 and 26 have no offset.
            made = f"try_cast(concat({stored}, IF(length({stored}) IN (19, 26), 'Z', '')) "
            made += "AS timestamp)"
            good = f"{stored} RLIKE {quoted(MOMENT)} AND unix_micros({made}) "
            good += f"BETWEEN {FIRST_MOMENT} AND {LAST_MOMENT}"
            return Sql(made, _if_there(stored, f"coalesce({good}, false)"))
        return Sql(stored)


@dataclass(frozen=True)
class Choice(Shape):
    """A member of an enum, by its value: text or a number."""

    of: Scalar
    values: tuple[Any, ...]

    @property
    def json(self) -> type:
        return self.of.json

    @property
    def parsed(self) -> str:
        return self.of.parsed

    @property
    def column(self) -> pa.DataType:
        return self.of.column

    def stored(self, parsed: str) -> Sql:
        return self.of.stored(parsed)

    def made(self, stored: str) -> Sql:
        known = ", ".join(quoted(v) if isinstance(v, str) else str(v) for v in self.values)
        return Sql(stored, _if_there(stored, f"{stored} IN ({known})"))

    def check(self, value: Any) -> None:
        self.of.check(value)

    def constant(self, value: Any) -> str:
        return self.of.constant(value)

    def plain(self, value: Any) -> Any:
        return None if value is None else value.value


@dataclass(frozen=True)
class Many(Shape):
    """A list or a tuple."""

    item: Shape

    @property
    def parsed(self) -> str:
        return f"array<{self.item.parsed}>"

    @property
    def column(self) -> pa.DataType:
        return pa.list_(self.item.column)

    def made(self, stored: str) -> Sql:
        name = _variable(stored)
        one = self.item.whole(name)
        value = stored if one.value == name else f"transform({stored}, {name} -> {one.value})"
        return Sql(value, _if_there(stored, f"forall({stored}, {name} -> {one.fits})"))

    def check(self, value: Any) -> None:
        _check_each(value, list, lambda found: [(self.item, one) for one in found])

    def plain(self, value: Any) -> Any:
        return None if value is None else [self.item.plain(one) for one in value]


@dataclass(frozen=True)
class ByName(Shape):
    """A dict with text as keys."""

    item: Shape

    @property
    def parsed(self) -> str:
        return f"map<string, {self.item.parsed}>"

    @property
    def column(self) -> pa.DataType:
        return pa.map_(pa.string(), self.item.column)

    def made(self, stored: str) -> Sql:
        name = _variable(stored)
        one = self.item.whole(name)
        same, changed = one.value == name, f"(k{name}, {name}) -> {one.value}"
        value = stored if same else f"transform_values({stored}, {changed})"
        return Sql(value, _if_there(stored, f"forall(map_values({stored}), {name} -> {one.fits})"))

    def check(self, value: Any) -> None:
        _check_each(value, dict, lambda found: [(self.item, one) for one in found.values()])

    def plain(self, value: Any) -> Any:
        if value is None:
            return None
        return {name: self.item.plain(one) for name, one in value.items()}


@dataclass(frozen=True)
class Nested(Shape):
    """A dataclass within another."""

    fields: tuple[tuple[str, Shape], ...]

    @property
    def parsed(self) -> str:
        return f"struct<{parsed_fields(dict(self.fields), ': ')}>"

    @property
    def column(self) -> pa.DataType:
        return pa.struct([(name, shape.column) for name, shape in self.fields])

    def made(self, stored: str) -> Sql:
        every = [(name, shape.whole(f"{stored}.{tick(name)}")) for name, shape in self.fields]
        made = ", ".join(f"{quoted(name)}, {one.value}" for name, one in every)
        value = f"IF({stored} IS NULL, NULL, named_struct({made}))"
        return Sql(value, _if_there(stored, conjunction(*(one.fits for _, one in every))))

    def check(self, value: Any) -> None:
        _check_each(value, dict, lambda found: [(s, found.get(name)) for name, s in self.fields])

    def plain(self, value: Any) -> Any:
        if value is None:
            return None
        return {name: shape.plain(getattr(value, name)) for name, shape in self.fields}


Fields = Mapping[str, Shape]
"""The fields of a message by name."""

TEXTS = (str, Decimal, date, datetime)
"""The types that JSON has as text."""

_COLUMNS = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    Decimal: pa.decimal128(38, 18),
    date: pa.date32(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def fields_of(kind: type) -> dict[str, Shape]:
    """The fields of a dataclass that has a codec, or `InvalidDomain` if one cannot be a column."""
    return _fields(kind, ())


def _fields(kind: Any, inside: tuple[type, ...]) -> dict[str, Shape]:
    hints = typing.get_type_hints(kind)
    found: dict[str, Shape] = {}
    for field in dataclasses.fields(kind):
        where = f"{kind.__name__}.{field.name}"
        if field.name.lower() in {name.lower() for name in found}:
            _refuse(where, "differs from another field only in case", "Rename it")
        found[field.name] = _shape(hints[field.name], where, (*inside, kind), optional=False)
    return found


def _shape(hint: Any, where: str, inside: tuple[type, ...], *, optional: bool) -> Shape:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in _COLUMNS:
        return Scalar(optional, hint)
    if origin in (Union, types.UnionType):
        (rest,) = (one for one in inner if one is not type(None))
        return _shape(rest, where, inside, optional=True)
    if origin is list or (origin is tuple and inner[1:] == (...,)):
        return Many(optional, _shape(inner[0], where, inside, optional=False))
    if origin is dict:
        return ByName(optional, _shape(inner[1], where, inside, optional=False))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        values = tuple(member.value for member in hint)
        kinds = {type(value) for value in values}
        if len(kinds) == 1:
            return Choice(optional, Scalar(True, kinds.pop()), values)
        _refuse(where, "has both text and numbers as values", "Give all members text")
    if dataclasses.is_dataclass(hint) and hint not in inside and dataclasses.fields(hint):
        return Nested(optional, tuple(_fields(hint, inside).items()))
    _refuse(
        where,
        f"has the type {getattr(hint, '__name__', hint)}",
        "Use a list of one type, or a dataclass that has fields and not itself",
    )


def _refuse(where: str, what: str, hint: str) -> NoReturn:
    raise InvalidDomain(f"{where} cannot be a column: it {what}", hint=hint)


def parsed_fields(fields: Fields, colon: str) -> str:
    """Fields as Spark parses them, in DDL."""
    return ", ".join(f"{tick(name)}{colon}{shape.parsed}" for name, shape in fields.items())


def conjunction(*conditions: str) -> str:
    """All of the conditions; those that are always true are left out."""
    needed = list(dict.fromkeys(one for one in conditions if one != "true"))
    return " AND ".join(f"({one})" for one in needed) or "true"


def quoted(text: str) -> str:
    """A text as a literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def tick(name: str) -> str:
    """A name as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def _check_each(
    value: Any, kind: type, parts: Callable[[Any], Iterable[tuple[Shape, Any]]]
) -> None:
    """Check a nested value of JSON and its parts."""
    if value is None:
        return
    for shape, one in parts(exactly(kind)(value)):
        if one is None and not shape.optional:
            raise Mismatch(f"{value!r} has nothing where a value has to be")
        shape.check(one)


def _if_there(stored: str, condition: str) -> str:
    return "true" if condition == "true" else f"{stored} IS NULL OR {condition}"


def _variable(outer: str) -> str:
    """A name for a lambda's variable that its surroundings do not have."""
    depth = 0
    while f"x{depth}_" in outer:
        depth += 1
    return f"x{depth}_"
