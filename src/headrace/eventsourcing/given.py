"""Commands that a person types: fields as JSON or as words."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from headrace.errors import WrongType
from headrace.eventsourcing.codec import Codec, Data
from headrace.eventsourcing.scalars import Mismatch, Turn

T = TypeVar("T")


def given(codec: Codec[T], fields: Mapping[str, Any]) -> T:
    """The value of plain data that a person gives. Fields with defaults may be missing."""
    reads = codec.reads
    values = {}
    try:
        if unknown := [name for name in fields if name not in reads]:
            raise Mismatch(f"there is no field {unknown[0]!r}")
        if missing := [name for name in _required(codec.kind) if name not in fields]:
            raise Mismatch(f"{missing[0]!r} is missing")
        for name, value in fields.items():
            try:
                values[name] = reads[name](value)
            except Mismatch as error:
                raise Mismatch(f"{name}: {error}") from None
    except Mismatch as error:
        raise WrongType(
            f"These are not the fields of {codec.kind.__name__}: {error}",
            hint=f"It has: {described(codec.kind)}",
        ) from None
    return codec.kind(**values)


def typed(codec: Codec[Any], words: Mapping[str, str]) -> Data:
    """Fields that a person writes as words: text as it is, and everything else in JSON."""
    reads = codec.reads
    return {name: _typed(reads.get(name), word) for name, word in words.items()}


def described(kind: type) -> str:
    """The fields of a class and their types, for people."""
    hints = typing.get_type_hints(kind)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(typing.cast(Any, kind))
    return ", ".join(f"{one.name} {_words(hints[one.name])}" for one in fields) or "no fields"


def _required(kind: type) -> list[str]:
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(typing.cast(Any, kind))
    none = dataclasses.MISSING
    return [one.name for one in fields if one.default is none and one.default_factory is none]


def _words(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _typed(read: Turn | None, word: str) -> Any:
    """The word itself if the field takes it, else what it is in JSON, else the word."""
    if read is None:
        return word
    try:
        read(word)
    except Mismatch:
        try:
            return json.loads(word)
        except ValueError:
            return word
    return word
