"""Check rows from Python and JSON one by one before they join a batch.

A bad row is refused when it is sent, and the error names the column, so that it cannot fail the
good rows of its batch.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidRecord, UnknownColumn, WrongType
from headrace.log.conform import null_key, too_large, unknown_column
from headrace.log.record import Header
from headrace.log.state import Topic
from headrace.schema.ddl import format_type

Check = Callable[[Any], Any]

_UNFIT = (TypeError, ValueError, ArithmeticError)
"""The exceptions of checks; overflows and invalid decimals are arithmetic errors."""

_EXACTLY = Context(prec=100, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation])
"""Exact decimals, independent of the caller's own context."""

_FLOAT_MAX = 3.4028235677973366e38  # larger numbers are infinite as 32-bit floats


class RowReader:
    """Turns dicts into the values of a typed topic's columns."""

    def __init__(self, topic: Topic) -> None:
        assert topic.schema is not None
        self._topic = topic
        self.names: list[str] = topic.schema.names
        self._known = frozenset(self.names)
        self._required = frozenset(f.name for f in topic.schema if not f.nullable)
        self._checks: list[tuple[str, Check]] = [(f.name, check_of(f.type)) for f in topic.schema]
        self._key = topic.key
        self._limit = topic.settings.max_record_bytes

    def read(self, row: Mapping[str, Any]) -> tuple[list[Any], int]:
        """The row's values in the order of the columns, and its size."""
        if not isinstance(row, Mapping):
            raise InvalidRecord(
                f"A record of topic {self._topic.name!r} must be a dict of its columns, "
                f"not {type(row).__name__} {_short(row)}",
                topic=self._topic.name,
            )
        if not row.keys() <= self._known:
            raise unknown_column(self._topic, next(n for n in row if n not in self._known))
        if self._key is not None and row.get(self._key) is None:
            raise null_key(self._topic)
        for name in self._required:
            if row.get(name) is None:
                raise UnknownColumn(
                    f"Topic {self._topic.name!r} needs the column {name!r}, but the row has none",
                    topic=self._topic.name,
                    column=name,
                )
        values = []
        size = 0
        for name, check in self._checks:
            value = row.get(name)
            if value is not None:
                try:
                    value = check(value)
                except _UNFIT as error:
                    raise self._wrong(name, value, str(error)) from None
                size += _size(value)
            values.append(value)
        return values, self._checked(size)

    def read_key(self, key: Any) -> tuple[list[Any], int]:
        """The values of a tombstone, which has only a key, and its size."""
        if self._key is None:
            raise InvalidRecord(
                f"Topic {self._topic.name!r} has no key, so it cannot have tombstones",
                topic=self._topic.name,
            )
        if key is None:
            raise null_key(self._topic)
        checks = dict(self._checks)
        try:
            value = checks[self._key](key)
        except _UNFIT as error:
            raise self._wrong(self._key, key, str(error)) from None
        values = [value if name == self._key else None for name in self.names]
        return values, self._checked(_size(value))

    def _checked(self, size: int) -> int:
        if size > self._limit:
            raise too_large(self._topic, size)
        return size

    def _wrong(self, name: str, value: Any, why: str) -> WrongType:
        assert self._topic.schema is not None
        kind = format_type(self._topic.schema.field(name).type)
        return WrongType(
            f"Column {name!r} of topic {self._topic.name!r} is {kind}, "
            f"but {_short(value)} does not fit it: {why}",
            topic=self._topic.name,
            column=name,
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_of(kind: pa.DataType) -> Check:
    types = pa.types
    if types.is_string(kind):
        return _string
    if types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return lambda value: _integer(value, limit)
    if types.is_float32(kind):
        return _float
    if types.is_floating(kind):
        return _double
    if types.is_boolean(kind):
        return _boolean
    if types.is_timestamp(kind):
        zoned = kind.tz is not None
        return lambda value: _timestamp(value, zoned)
    if types.is_date(kind):
        return _date
    if types.is_decimal(kind):
        return lambda value: _decimal(value, kind.precision, kind.scale)
    if types.is_binary(kind):
        return _binary
    if types.is_list(kind):
        item = _optional(check_of(kind.value_type))
        return lambda value: [item(x) for x in _sequence(value)]
    if types.is_map(kind):
        key, item = check_of(kind.key_type), _optional(check_of(kind.item_type))
        return lambda value: [(key(k), item(v)) for k, v in _mapping(value).items()]
    if types.is_struct(kind):
        fields = {field.name: _optional(check_of(field.type)) for field in kind}
        return lambda value: _struct(value, fields)
    raise TypeError(f"no check for {kind}")


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is not text")
    if not value.isascii():
        value.encode()  # raises on half a surrogate pair, which JSON can contain
    return value


def _integer(value: Any, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        if isinstance(value, float) and value.is_integer():
            return _integer(int(value), limit)
        raise TypeError("it is not a whole number")
    if not -limit <= value < limit:
        raise ValueError(f"it is outside {-limit} to {limit - 1}")
    return value


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("it is not a number")
    return float(value)


def _float(value: Any) -> float:
    number = _double(value)
    if math.isfinite(number) and abs(number) >= _FLOAT_MAX:
        raise ValueError("it is too large for 32 bits")
    return number


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("it is neither true nor false")
    return value


_NO_TIME = "it is not a time such as 2026-01-31T12:00:00Z"
_NO_DATE = "it is not a date such as 2026-01-31"


def _timestamp(value: Any, zoned: bool) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(_NO_TIME) from None
    if isinstance(value, int):
        raise TypeError(
            "it is a number. Declare the column as bigint, and as the topic's event time "
            "timestamp_millis(column), or timestamp_seconds(column)"
        )
    if not isinstance(value, datetime):
        raise TypeError(_NO_TIME)
    if zoned:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if value.tzinfo is not None:
        raise ValueError("it has a time zone, but its column has none")
    return value


def _date(value: Any) -> date:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            raise ValueError(_NO_DATE) from None
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError(_NO_DATE)
    return value


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise TypeError("it is not a number")
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value, _EXACTLY)
    except InvalidOperation:
        raise ValueError("it is not a number") from None
    if not number.is_finite():
        raise ValueError("it is not a finite number")
    if number and number.adjusted() >= precision - scale:
        raise ValueError(f"it has more than {precision} digits")
    exact = number.quantize(Decimal((0, (1,), -scale)), context=_EXACTLY)
    if exact != number:
        raise ValueError(f"it has more than {scale} decimals")
    return exact


def _binary(value: Any) -> bytes:
    if isinstance(value, str):
        return base64.b64decode(value, validate=True)
    if not isinstance(value, bytes | bytearray):
        raise TypeError("it is neither bytes nor base64 text")
    return bytes(value)


def _sequence(value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError("it is not a list")
    return value


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("it is not a mapping")
    return value


def _struct(value: Any, fields: Mapping[str, Check]) -> dict[str, Any]:
    given = _mapping(value)
    for name in given:
        if name not in fields:
            raise ValueError(f"the column has no field {name!r}")
    return {name: check(given.get(name)) for name, check in fields.items()}


def _size(value: Any) -> int:
    """The approximate size of a checked value in bytes, for size limits."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return 8


def check_headers(headers: Sequence[Any]) -> list[Header]:
    """A record's headers: names, each with bytes, text or None."""
    checked: list[Header] = []
    try:
        for name, data in headers:
            if not isinstance(name, str) or not isinstance(data, str | bytes | None):
                raise TypeError
            name.encode()
            checked.append((name, data.encode() if isinstance(data, str) else data))
    except (TypeError, ValueError):
        raise InvalidRecord(
            f"{_short(headers)} are not valid headers",
            hint='Give pairs of a name and bytes: [("trace", b"7f3a")]',
        ) from None
    return checked


def raw_bytes(value: Any) -> bytes | None:
    """A raw topic's key or value as bytes, from bytes, text or anything that JSON can hold."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    try:
        if isinstance(value, str):
            return value.encode()
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRecord(
            f"{_short(value)} is neither bytes, text nor JSON: {error}",
            hint="Encode it before sending it",
        ) from None
