"""Stored events as rows: of chosen types, in the columns of their current classes.

`EventReading` says it twice. `row` reads one stored event in Python. `parses`, `columns` and `dead`
are Spark SQL over the columns of the events topic, for all versions at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidDomain, UnreadableEvent
from headrace.eventsourcing.codec import HALF_CHARACTER
from headrace.eventsourcing.columns import (
    Fields,
    Shape,
    conjunction,
    fields_of,
    parsed_fields,
    quoted,
)
from headrace.eventsourcing.declare import EventType
from headrace.eventsourcing.flat import flat_object
from headrace.eventsourcing.upcast import Columns, Upcast, steps_from

SLOW = "_upcasted"
"""The column with what Python has upcasted: JSON of the current version, or null."""

_OPTIONS = (
    "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_bad', 'allowSingleQuotes', 'false', "
    "'allowNonNumericNumbers', 'false')"
)

_NO_FIELD = "'f', true"

Version = tuple[EventType, int]


@dataclass(frozen=True)
class EventReading:
    """Events of the chosen types. `known` are the names of all types of the domain."""

    types: tuple[EventType, ...]
    known: tuple[str, ...]

    # In Python

    def wants(self, row: Mapping[str, Any]) -> bool:
        """True if a stored event is chosen, or of a type that nobody knows."""
        return row["type"] in self._by_name or row["type"] not in self.known

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a stored event, or `UnreadableEvent`. Fields of other types are null."""
        kind = self._by_name.get(row["type"])
        if kind is None:
            raise UnreadableEvent(
                f"There is no type of event {row['type']!r}",
                hint=f"There are: {', '.join(self.known)}",
            )
        event = kind.decode(row["data"], row["schema"])
        mine = self._fields[kind.name]
        made = {name: shape.plain(getattr(event, name)) for name, shape in mine.items()}
        return {**dict.fromkeys(self.fields), **made}

    # As columns

    @cached_property
    def fields(self) -> dict[str, pa.DataType]:
        """The fields of all chosen types, and the types of their columns."""
        found: dict[str, pa.DataType] = {}
        for name, fields in self._fields.items():
            for field, shape in fields.items():
                if found.setdefault(field, shape.column) != shape.column:
                    raise InvalidDomain(
                        f"The field {field!r} of {name!r} has another type than that of another "
                        "event",
                        hint="Read the types in streams of their own: domain.stream(app, name)",
                    )
        return found

    @property
    def is_slow(self) -> bool:
        """True if Python has to upcast some events, into the column `SLOW`."""
        return any(_is_slow(one) for one in self._versions())

    def upcasted(self, types: Sequence[str], schemas: Sequence[int], data: Sequence[str]) -> Any:
        """The column `SLOW` of some events; null where Python has nothing to do, or cannot."""
        return [self._slow(*one) for one in zip(types, schemas, data, strict=True)]

    @cached_property
    def parses(self) -> tuple[dict[str, str], ...]:
        """Columns to add first, step by step, and last the fields as they are stored.

        What is flat is taken apart by patterns, and only the rest is parsed.
        """
        flat: dict[str, str] = {}
        parsed: dict[str, str] = {}
        stored: dict[str, str] = {}
        for n, group in enumerate(self._groups):
            mine = _any_of(group.versions)
            easy = None if group.slow else flat_object(group.fields)
            rest, values = mine, group.parsed(f"_parsed{n}")
            if easy is not None:
                condition, fields = easy
                flat[f"_flat{n}"] = f"CASE WHEN ({mine}) AND {condition} THEN {_struct(fields)} END"
                rest, values = f"({mine}) AND _flat{n} IS NULL", f"coalesce(_flat{n}, {values})"
            parsed[f"_parsed{n}"] = f"CASE WHEN {rest} THEN {group.parse} END"
            stored[f"_stored{n}"] = values
        return tuple(level for level in (flat, parsed, stored) if level)

    @cached_property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Each field of `fields`, as an expression over the parsed columns."""
        made: list[tuple[str, str]] = []
        for field in self.fields:
            cases = [
                f"WHEN {_any_of([version])} THEN {columns[field]}"
                for version, columns, _ in self._read
                if columns.get(field) is not None
            ]
            made.append((field, f"CASE {' '.join(cases)} END"))
        return tuple(made)

    @cached_property
    def dead(self) -> str:
        """The condition of an event that cannot be read; never null."""
        chosen = ", ".join(quoted(one.name) for one in self.types)
        known = ", ".join(map(quoted, self.known))
        good = " ".join(
            f"WHEN {_any_of([version])} THEN coalesce({fits}, false)"
            for version, _, fits in self._read
        )
        half = f"contains(data, '\\\\u') AND data RLIKE {quoted(HALF_CHARACTER.pattern)}"
        bad = f"NOT CASE {good} ELSE false END OR ({half})"
        return f"CASE WHEN type IN ({chosen}) THEN {bad} ELSE type NOT IN ({known}) END"

    @cached_property
    def other(self) -> str:
        """The condition of an event of a known type that was not chosen."""
        chosen = ", ".join(quoted(one.name) for one in self.types)
        return f"type NOT IN ({chosen})"

    @cached_property
    def _by_name(self) -> dict[str, EventType]:
        return {one.name: one for one in self.types}

    @cached_property
    def _fields(self) -> dict[str, dict[str, Shape]]:
        return {one.name: fields_of(one.kind) for one in self.types}

    def _versions(self) -> Iterator[Version]:
        return ((one, version) for one in self.types for version in range(1, one.version + 1))

    def _slow(self, name: str, schema: int, data: str) -> str | None:
        kind = self._by_name.get(name)
        if kind is None or not 1 <= schema <= kind.version or not _is_slow((kind, schema)):
            return None
        try:
            return kind.codec.encode(kind.decode(data, schema))
        except UnreadableEvent:
            return None

    @cached_property
    def _before(self) -> list[tuple[Version, list[Fields]]]:
        """The fields of each version, before and after each step."""
        found = []
        for kind, version in self._versions():
            steps = () if _is_slow((kind, version)) else steps_from(kind.chain, version)
            fields: list[Fields] = [self._fields[kind.name]]
            for step in reversed(steps):
                fields.insert(0, step.before(fields[0]))
            found.append(((kind, version), fields))
        return found

    @cached_property
    def _groups(self) -> list[_Group]:
        """The versions that have the same fields.

        A field of another version would make Spark refuse data that this version ignores.
        """
        found: dict[str, _Group] = {}
        for version, fields in self._before:
            slow = _is_slow(version)
            group = _Group(dict(fields[0]), slow, [])
            found.setdefault(f"{group.parse} {list(fields[0].items())}", group)
            found[f"{group.parse} {list(fields[0].items())}"].versions.append(version)
        return list(found.values())

    @cached_property
    def _read(self) -> list[tuple[Version, Columns, str]]:
        """The columns of each version, and the condition under which they are good."""
        stored = {
            version: f"_stored{n}"
            for n, group in enumerate(self._groups)
            for version in group.versions
        }
        return [self._columns(version, fields, stored[version]) for version, fields in self._before]

    def _columns(
        self, version: Version, fields: Sequence[Fields], stored: str
    ) -> tuple[Version, Columns, str]:
        checks = [f"{stored} IS NOT NULL"]
        columns: Columns = {name: f"{stored}.f{n}" for n, name in enumerate(fields[0])}
        kind, number = version
        steps = () if _is_slow(version) else steps_from(kind.chain, number)
        for step, after in zip(steps, fields[1:], strict=True):
            columns = step.columns(columns, after, checks)
        made: Columns = {}
        for name, shape in fields[-1].items():
            if (stored_value := columns.get(name)) is not None:
                one = shape.made(stored_value)
                made[name] = one.value
                checks += [one.fits, "true" if shape.optional else f"{one.value} IS NOT NULL"]
            elif not shape.optional:
                checks.append("false")
        return version, made, conjunction(*checks)


@dataclass(frozen=True)
class _Group:
    """Versions of events with the same stored fields; with `slow`, as Python has upcasted them."""

    fields: Fields
    slow: bool
    versions: list[Version]

    @cached_property
    def parse(self) -> str:
        """The expression that parses them.

        Alone, Spark would ignore what follows the object. In a list, it is a second item or an
        error.
        """
        inside = parsed_fields(self.fields, ": ") or "`_`: variant"
        schema = f"d array<struct<{inside}>>, e boolean, _bad string"
        source = SLOW if self.slow else "data"
        text = f"concat('{{\"d\":[', {source}, '],\"e\":true}}')"
        # Names in other fields' names' upper case are ambiguous in Spark, so they get numbers.
        numbered = ", ".join(
            f"f{n}: {shape.parsed}" for n, shape in enumerate(self.fields.values())
        )
        kind = f"struct<d: array<struct<{numbered or 'f: variant'}>>, e: boolean, _bad: string>"
        return f"CAST(from_json({text}, {quoted(schema)}, {_OPTIONS}) AS {kind})"

    def parsed(self, column: str) -> str:
        """The fields as they are stored, from what was parsed; null if they are bad."""
        whole = f"get({column}.d, 0)"
        checks = [
            f"{column}._bad IS NULL", f"{column}.e", f"size({column}.d) = 1", f"{whole} IS NOT NULL"
        ]  # fmt: skip
        values = []
        for n, shape in enumerate(self.fields.values()):
            stored = shape.stored(f"{whole}.f{n}")
            values.append(stored.value)
            checks.append(stored.fits)
        return f"CASE WHEN {conjunction(*checks)} THEN {_struct(values)} END"


def _struct(values: Sequence[str]) -> str:
    """A struct of values."""
    fields = ", ".join(f"'f{n}', {value}" for n, value in enumerate(values))
    return f"named_struct({fields or _NO_FIELD})"


def _is_slow(version: Version) -> bool:
    kind, number = version
    return any(isinstance(step, Upcast) for step in steps_from(kind.chain, number))


def _any_of(versions: Sequence[Version]) -> str:
    """The condition of events of some types and versions."""
    by_name: dict[str, list[int]] = {}
    for kind, version in versions:
        by_name.setdefault(kind.name, []).append(version)
    return " OR ".join(
        f"type = {quoted(name)} AND schema IN ({', '.join(map(str, numbers))})"
        for name, numbers in by_name.items()
    )
