"""Dataclasses to JSON and back, checked by their type hints in both directions.

An event is stored forever, so a wrong value is refused when it is written, and data that does not
fit is refused when it is read: nothing is guessed. Of messages, a missing field is None and an
unknown one is ignored, as in Spark's columns (see `columns`).
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Generic, NoReturn, TypeVar, Union

from headrace.errors import InvalidDomain, UnreadableEvent, WrongType
from headrace.eventsourcing.scalars import SCALARS, Mismatch, Turn, exactly

T = TypeVar("T")

Data = dict[str, Any]
"""A dataclass as plain data: what its JSON text means."""

_KINDS = "str, int, float, bool, Decimal, date, datetime, enums, lists, tuples, dicts with text as "
_KINDS += "keys, other frozen dataclasses, and each of them or None"


class Codec(Generic[T]):
    """Writes and reads the instances of one frozen dataclass."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self._fields: list[tuple[str, Turn, Turn]] = []

    def data(self, value: T) -> Data:
        """The value as plain data."""
        try:
            return self._write(value)
        except Mismatch as error:
            raise WrongType(
                f"A {self.kind.__name__} cannot be stored: {error}",
                hint="Give each field a value of the type that it is declared with",
            ) from None

    def encode(self, value: T) -> str:
        """The value as JSON text."""
        return text_of(self.data(value))

    def read(self, data: Mapping[str, Any], *, tolerant: bool = False) -> T:
        """The value that plain data means; with just its fields, unless `tolerant`."""
        names = {name for name, _, _ in self._fields}
        try:
            if not tolerant and (odd := sorted(names.symmetric_difference(data))):
                missing = odd[0] in names
                what = "no field" if missing else "the unknown field"
                raise Mismatch(f"it has {what} {odd[0]!r}")
            return self._read(data)
        except Mismatch as error:
            raise UnreadableEvent(
                f"Stored data is not a {self.kind.__name__}: {error}",
                hint="If the class has changed, raise its version and declare upcasters, such as "
                "es.default or es.rename, from the old one",
            ) from None

    def decode(self, text: str) -> T:
        """The value that JSON text means."""
        return self.read(parsed(text))

    @property
    def reads(self) -> dict[str, Turn]:
        """The reader of each field."""
        return {name: read for name, _, read in self._fields}

    def _write(self, value: Any) -> Data:
        if type(value) is not self.kind:
            raise Mismatch(f"it is {value!r}, not a {self.kind.__name__}")
        found = {}
        for name, write, _ in self._fields:
            found[name] = _at(name, write, getattr(value, name))
        return found

    def _read(self, data: Any) -> T:
        if not isinstance(data, Mapping):
            raise Mismatch(f"{data!r} is no object")
        values = {}
        for name, _, read in self._fields:
            values[name] = _at(name, read, data.get(name))
        return self.kind(**values)


def _at(name: str, turn: Turn, value: Any) -> Any:
    try:
        return turn(value)
    except Mismatch as error:
        raise Mismatch(f"{name}: {error}") from None


def text_of(data: Data) -> str:
    """Plain data as JSON text."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


HALF_CHARACTER = re.compile(
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89aAbB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)
"""An escape of one half of a surrogate pair, which Spark would replace by a question mark."""


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def parsed(text: str) -> Data:
    """The object in JSON text."""
    if "\\u" in text and HALF_CHARACTER.search(text):
        raise UnreadableEvent(
            "Stored data has half a character", hint="Something else has written to the topic"
        )
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise UnreadableEvent(
            f"Stored data is not JSON: {error}", hint="Something else has written to the topic"
        ) from None
    if not isinstance(found, dict):
        raise UnreadableEvent(
            "Stored data is not a JSON object", hint="Something else has written to the topic"
        )
    return found


_codecs: dict[type, Codec[Any]] = {}


def codec_of(kind: type[T]) -> Codec[T]:
    """The codec of a frozen dataclass; refuses fields whose types have no form in JSON."""
    found = _codecs.get(kind)
    if found is None:
        found = Codec(kind)
        fields = _fields_of(kind)
        _codecs[kind] = found  # before its fields, which may be of the same class
        try:
            hints = typing.get_type_hints(kind)
            for field in fields:
                found._fields.append((field.name, *_turns(hints[field.name], kind, field.name)))
        except NameError as error:
            del _codecs[kind]
            raise InvalidDomain(
                f"The types of {kind.__name__} cannot be found: {error}",
                hint="Define the class, and those that it names, at the top of a module",
            ) from None
        except InvalidDomain:
            del _codecs[kind]
            raise
    return found


def _fields_of(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    name = getattr(kind, "__name__", repr(kind))
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is None:
        raise InvalidDomain(
            f"{name} is not a dataclass", hint="Decorate it: @dataclass(frozen=True)"
        )
    if not parameters.frozen:
        raise InvalidDomain(
            f"{name} can be changed after it was made",
            hint="Events, commands and states are values: @dataclass(frozen=True)",
        )
    fields = dataclasses.fields(kind)
    for field in fields:
        if not field.init:
            raise InvalidDomain(
                f"{name}.{field.name} is not set by the constructor",
                hint="Make it a property: only what the constructor takes is stored",
            )
    return fields


def _turns(hint: Any, owner: type, name: str) -> tuple[Turn, Turn]:
    """How a value of a type is written and read."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin in (Union, types.UnionType):
        rest = [kind for kind in inner if kind is not type(None)]
        if len(rest) == 1 and len(inner) == 2:
            return _or_none(*_turns(rest[0], owner, name))
    elif origin is list and inner:
        return _lists(list, *_turns(inner[0], owner, name))
    elif origin is tuple and len(inner) == 2 and inner[1] is ...:
        return _lists(tuple, *_turns(inner[0], owner, name))
    elif origin is tuple and inner and ... not in inner:
        return _fixed([_turns(kind, owner, name) for kind in inner])
    elif origin is dict and inner[0] is str:
        return _dicts(*_turns(inner[1], owner, name))
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enums(hint)
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        codec = codec_of(hint)
        return codec._write, codec._read
    raise InvalidDomain(
        f"{owner.__name__}.{name} has the type {getattr(hint, '__name__', hint)}, which has no "
        "form in JSON here",
        hint=f"Use {_KINDS}",
    )


def _or_none(write: Turn, read: Turn) -> tuple[Turn, Turn]:
    def maybe(turn: Turn) -> Turn:
        return lambda value: None if value is None else turn(value)

    return maybe(write), maybe(read)


def _lists(kind: type, write: Turn, read: Turn) -> tuple[Turn, Turn]:
    check, given = exactly(kind), exactly(list)
    return (
        lambda value: [write(item) for item in check(value)],
        lambda value: kind(read(item) for item in given(value)),
    )


def _fixed(turns: list[tuple[Turn, Turn]]) -> tuple[Turn, Turn]:
    def each(side: int, values: Any) -> list[Any]:
        if len(values) != len(turns):
            raise Mismatch(f"{values!r} has not {len(turns)} values")
        return [turn[side](value) for turn, value in zip(turns, values, strict=True)]

    written, stored = exactly(tuple), exactly(list)
    return lambda value: each(0, written(value)), lambda value: tuple(each(1, stored(value)))


def _dicts(write: Turn, read: Turn) -> tuple[Turn, Turn]:
    check, key = exactly(dict), exactly(str)

    def each(turn: Turn) -> Turn:
        return lambda value: {key(name): turn(item) for name, item in check(value).items()}

    return each(write), each(read)


def _enums(kind: type[enum.Enum]) -> tuple[Turn, Turn]:
    for member in kind:
        if type(member.value) not in (str, int):
            raise InvalidDomain(
                f"{kind.__name__}.{member.name} has a value that is neither text nor an integer",
                hint="The value is what is stored: give each member a stable text",
            )
    known = {member.value: member for member in kind}

    def read(value: Any) -> Any:
        if type(value) not in (str, int) or value not in known:
            raise Mismatch(f"{value!r} is not a {kind.__name__}")
        return known[value]

    check = exactly(kind)
    return lambda value: check(value).value, read


def plain(value: Any) -> Any:
    """A constant as plain data."""
    kind = type(value)
    if value is None or kind in SCALARS:
        return None if value is None else SCALARS[kind][0](value)
    if isinstance(value, enum.Enum):
        return value.value
    if kind in (list, tuple):
        return [plain(item) for item in value]
    if kind is dict:
        return {name: plain(item) for name, item in value.items()}
    return codec_of(kind).data(value)
