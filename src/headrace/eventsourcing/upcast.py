"""Upcasters: stored data of an older version, step by step, as the current version.

A declared step is one change in two forms: of plain data in Python, and of columns in Spark SQL.
Both see a missing field and null as the same. Only `es.upcast(function)` has no second form.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidDomain, UnreadableEvent
from headrace.eventsourcing.codec import Data, plain
from headrace.eventsourcing.columns import Fields, Scalar, Shape, quoted
from headrace.eventsourcing.retypes import Retyping, retyping
from headrace.eventsourcing.scalars import SCALARS, Mismatch

Columns = dict[str, str]
"""The fields as expressions of Spark SQL, of what JSON has."""


class UpcastStep(ABC):
    """One change of a version's data."""

    @abstractmethod
    def apply(self, data: Data) -> Data:
        """The data after this step."""

    @abstractmethod
    def before(self, after: Fields) -> dict[str, Shape]:
        """The fields that are needed before this step, for those after it."""

    @abstractmethod
    def columns(self, given: Columns, after: Fields, checks: list[str]) -> Columns:
        """The columns after this step; `checks` gets conditions that good data meets."""


Chain = tuple[tuple[UpcastStep, ...], ...]
"""The steps from version 1 to 2, those from version 2 to 3, and so on."""


def upcasted(chain: Chain, data: Data, version: int) -> Data:
    """Data of a version as the current one."""
    for steps in chain[version - 1 :]:
        for step in steps:
            data = step.apply(data)
    return data


def steps_from(chain: Chain, version: int) -> tuple[UpcastStep, ...]:
    """All steps from a version to the current one."""
    return tuple(step for steps in chain[version - 1 :] for step in steps)


@dataclass(frozen=True)
class Default(UpcastStep):
    """A value for a field that older data lacks."""

    field: str
    value: Any = dataclasses.field(hash=False)

    def apply(self, data: Data) -> Data:
        there = data.get(self.field)
        return {**data, self.field: self.value if there is None else there}

    def before(self, after: Fields) -> dict[str, Shape]:
        if self.field not in after:
            raise _unused(f"es.default({self.field!r}, ...)", self.field, after)
        after[self.field].literal(self.value)
        return dict(after)

    def columns(self, given: Columns, after: Fields, checks: list[str]) -> Columns:
        value = after[self.field].literal(self.value)
        there = given.get(self.field)
        return {**given, self.field: value if there is None else f"coalesce({there}, {value})"}


@dataclass(frozen=True)
class Rename(UpcastStep):
    """A field that has another name in older data."""

    old: str
    new: str

    def apply(self, data: Data) -> Data:
        rest = {name: value for name, value in data.items() if name != self.old}
        return {**rest, self.new: data.get(self.old)}

    def before(self, after: Fields) -> dict[str, Shape]:
        if self.new not in after:
            raise _unused(f"es.rename({self.old!r}, {self.new!r})", self.new, after)
        fields = _without(after, self.new, self.old)
        return {**fields, self.old: after[self.new]}

    def columns(self, given: Columns, after: Fields, checks: list[str]) -> Columns:
        there = {self.new: given[self.old]} if self.old in given else {}
        return {**_without(given, self.old, self.new), **there}


@dataclass(frozen=True)
class Drop(UpcastStep):
    """A field of older data that is not needed."""

    field: str

    def apply(self, data: Data) -> Data:
        return _without(data, self.field)

    def before(self, after: Fields) -> dict[str, Shape]:
        return _without(after, self.field)

    def columns(self, given: Columns, after: Fields, checks: list[str]) -> Columns:
        return _without(given, self.field)


@dataclass(frozen=True)
class Split(UpcastStep):
    """A text whose parts become fields; the last one gets the rest, missing ones are null."""

    field: str
    into: tuple[str, ...]
    by: str

    def apply(self, data: Data) -> Data:
        text = _read(str, self.field, data)
        parts = [] if text is None else text.split(self.by, len(self.into) - 1)
        named = {name: parts[n] if n < len(parts) else None for n, name in enumerate(self.into)}
        return {**_without(data, self.field), **named}

    def before(self, after: Fields) -> dict[str, Shape]:
        for name in self.into:
            _check(f"es.split({self.field!r}, ...)", name, str, after)
        return {**_without(after, *self.into), self.field: _TEXT}

    def columns(self, given: Columns, after: Fields, checks: list[str]) -> Columns:
        parts = (
            f"split({given.get(self.field, _NONE)}, {quoted(re.escape(self.by))}, {len(self.into)})"
        )
        named = {name: f"get({parts}, {n})" for n, name in enumerate(self.into)}
        return {**_without(given, self.field), **named}


@dataclass(frozen=True)
class Merge(UpcastStep):
    """Several texts as one, with a text between them; nulls are left out."""

    fields: tuple[str, ...]
    into: str
    by: str

    def apply(self, data: Data) -> Data:
        texts = [_read(str, name, data) for name in self.fields]
        there = [text for text in texts if text is not None]
        return {
            **_without(data, *self.fields),
            self.into: self.by.join(there) if there else None,
        }

    def before(self, after: Fields) -> dict[str, Shape]:
        _check(f"es.merge({list(self.fields)!r}, ...)", self.into, str, after)
        return {**_without(after, self.into), **dict.fromkeys(self.fields, _TEXT)}

    def columns(self, given: Columns, after: Fields, checks: list[str]) -> Columns:
        texts = ", ".join(given.get(name, _NONE) for name in self.fields)
        joined = f"concat_ws({quoted(self.by)}, {texts})"
        made = f"IF(coalesce({texts}) IS NULL, NULL, {joined})"
        return {**_without(given, *self.fields), self.into: made}


@dataclass(frozen=True)
class Retype(UpcastStep):
    """A field that has another type in older data."""

    field: str
    was: type
    to: type
    how: Retyping = dataclasses.field(repr=False, compare=False)

    def apply(self, data: Data) -> Data:
        value = _read(self.how.stored, self.field, data)
        if value is None:
            return data
        if (made := self.how.value(value)) is None:
            raise UnreadableEvent(
                f"{self.field!r} has {value!r}, which is no {self.to.__name__}",
                hint="Use es.upcast(function) to say what such a value means",
            )
        return {**data, self.field: made}

    def before(self, after: Fields) -> dict[str, Shape]:
        _check(f"es.retype({self.field!r}, ...)", self.field, self.how.made, after)
        return {**after, self.field: Scalar(True, self.how.stored)}

    def columns(self, given: Columns, after: Fields, checks: list[str]) -> Columns:
        if (value := given.get(self.field)) is None:
            return given
        made = self.how.column(value)
        checks.append(f"{value} IS NULL OR {made} IS NOT NULL")
        return {**given, self.field: made}


@dataclass(frozen=True, repr=False)
class Upcast(UpcastStep):
    """A function of the user's, from older data to newer."""

    function: Callable[[Data], Mapping[str, Any]]

    def __repr__(self) -> str:
        return f"es.upcast({getattr(self.function, '__qualname__', self.function)})"

    def apply(self, data: Data) -> Data:
        name = getattr(self.function, "__qualname__", repr(self.function))
        try:
            made = self.function(dict(data))
        except Exception as error:
            raise UnreadableEvent(
                f"The upcaster {name} failed: {error!r}", hint="Make it accept all stored data"
            ) from error
        if not isinstance(made, Mapping):
            raise UnreadableEvent(
                f"The upcaster {name} returned {made!r}, which is no dict",
                hint="It takes the data of an event as a dict and returns another",
            )
        return dict(made)

    def before(self, after: Fields) -> dict[str, Shape]:
        raise TypeError(f"{self} has no form in SQL")

    def columns(self, given: Columns, after: Fields, checks: list[str]) -> Columns:
        raise TypeError(f"{self} has no form in SQL")


def default(field: str, value: Any) -> Default:
    """Give a field that older data lacks a value."""
    return Default(field, plain(value))


def rename(old: str, new: str) -> Rename:
    """Rename a field of older data."""
    return Rename(old, new)


def drop(field: str) -> Drop:
    """Leave out a field of older data."""
    return Drop(field)


def split(field: str, into: Sequence[str], by: str = " ") -> Split:
    """Split a text of older data into several fields.

    The last field gets what is left. Those without a part are null.
    """
    names = tuple(into)
    if isinstance(into, str) or not names or len(set(names)) < len(names):
        raise InvalidDomain(
            f"es.split({field!r}) cannot split into {into!r}", hint="Name the fields: ['a', 'b']"
        )
    return Split(field, names, _separator(by))


def merge(fields: Sequence[str], into: str, by: str = " ") -> Merge:
    """Join several texts of older data to one. Nulls are left out."""
    names = tuple(fields)
    if isinstance(fields, str) or not names:
        raise InvalidDomain(
            f"es.merge() cannot merge {fields!r}", hint="Name the fields: ['a', 'b']"
        )
    return Merge(names, into, by)


def retype(field: str, was: type, to: type) -> Retype:
    """Change the type of a field of older data, such as from `str` to `int`."""
    return Retype(field, was, to, retyping(field, was, to))


def upcast(function: Callable[[Data], Mapping[str, Any]]) -> Upcast:
    """Change older data with a Python function of a dict.

    This is the slow path: on Spark, Python handles each such event, in whole Arrow batches.
    """
    if not callable(function):
        raise InvalidDomain(f"{function!r} is no function", hint="es.upcast(function)")
    return Upcast(function)


_TEXT = Scalar(True, str)
_NONE = "CAST(NULL AS string)"


def _read(kind: type, field: str, data: Data) -> Any:
    """The value of a field, which has to be of that type or null."""
    value = data.get(field)
    try:
        return None if value is None else SCALARS[kind][1](value)
    except Mismatch as error:
        raise UnreadableEvent(
            f"{field!r} cannot be upcasted: {error}", hint="Use es.upcast(function) for such data"
        ) from None


def _without(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}


def _separator(by: str) -> str:
    if not by:
        raise InvalidDomain(f"{by!r} cannot separate texts", hint="by=' '")
    return by


def _check(step: str, field: str, kind: type, after: Fields) -> None:
    """Check that a field, if it is needed, has a type that JSON has as `kind`."""
    if field in after and after[field].json is not kind:
        raise InvalidDomain(
            f"{step} makes {field!r} a {kind.__name__}, and after it another type is needed",
            hint="Add es.retype(...) after it, or use es.upcast(function)",
        )


def _unused(step: str, field: str, after: Fields) -> InvalidDomain:
    return InvalidDomain(
        f"{step} makes a field {field!r} that is not needed",
        hint=f"After it, there are: {', '.join(after)}",
    )
