"""Records as JSON: what `produce` reads and what `consume --json` prints."""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidRecord
from headrace.log import Header, Record, Topic
from headrace.schema.json_text import finite

Sent = tuple[Any, Any, list[Header] | None, int | None]
"""A record as `send` takes it: value, key, headers, partition."""

_FIELDS = ("key", "value", "headers", "partition", "topic", "offset", "timestamp")
_KNOWN = frozenset(_FIELDS)

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

# Reading


def line_reader(topic: Topic) -> Callable[[bytes], Sent]:
    """A function that turns a line into what `send` takes, or raises `InvalidRecord`."""
    if topic.schema is None:
        return _read_raw
    # A column called "value" would be ambiguous with the value of a record.
    wrapped = "value" not in topic.schema.names
    return _read_row_or_record if wrapped else _read_row


def _read_raw(line: bytes) -> Sent:
    record = _load(line)
    if "value" not in record:
        raise InvalidRecord(
            'The line has no "value"',
            hint='Write {"key": …, "value": …}, with null for a tombstone',
        )
    if not record.keys() <= _KNOWN:
        raise _unknown_field(record)
    value, key, headers = record["value"], record.get("key"), record.get("headers")
    if value.__class__ is dict or key.__class__ is dict:
        value, key = _bytes(value), _bytes(key)
    return value, key, _read_headers(headers) if headers else None, _read_partition(record)


def _read_row(line: bytes) -> Sent:
    return _load(line), None, None, None


def _read_row_or_record(line: bytes) -> Sent:
    row = _load(line)
    if "value" not in row:
        return row, None, None, None
    if not row.keys() <= _KNOWN:
        raise _unknown_field(row)
    return row["value"], row.get("key"), None, _read_partition(row)


def _load(line: bytes) -> dict[str, Any]:
    try:
        loaded = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise InvalidRecord(
            f"The line is not UTF-8: {error.reason} at byte {error.start}"
        ) from None
    except json.JSONDecodeError as error:
        raise InvalidRecord(
            f"The line is not JSON: {error.msg} at character {error.pos + 1}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"The line cannot be read as JSON: {error}") from None
    if loaded.__class__ is not dict:
        raise InvalidRecord(
            "The line is not a JSON object", hint='Write {"key": …, "value": …}, or a row'
        )
    return loaded


def _unknown_field(record: dict[str, Any]) -> InvalidRecord:
    name = next(name for name in record if name not in _KNOWN)
    near = difflib.get_close_matches(name, _FIELDS, 1)
    return InvalidRecord(
        f"A record has no field {name!r}",
        hint=f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(_FIELDS[:4])}",
    )


def _read_partition(record: dict[str, Any]) -> int | None:
    partition = record.get("partition")
    if partition is not None and partition.__class__ is not int:
        raise InvalidRecord(f"The partition is not a number: {partition!r}")
    return partition


def _read_headers(headers: Any) -> list[Header]:
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    try:
        return [(str(name), _header_bytes(value)) for name, value in pairs]
    except (TypeError, ValueError):
        raise InvalidRecord(
            "The headers are neither an object nor a list of pairs",
            hint='Write "headers": {"trace": "7f3a"} or [["trace", "7f3a"]]',
        ) from None


def _header_bytes(value: Any) -> bytes | None:
    value = _bytes(value)
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else _compact(value)).encode()


def _bytes(value: Any) -> Any:
    """The bytes of {"base64": "…"}; anything else as it is."""
    if value.__class__ is dict and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except ValueError as error:
            raise InvalidRecord(f"{value['base64']!r} is not base64: {error}") from None
    return value


# Printing


class RecordFormat:
    """The conversion of a topic's records to JSON."""

    def __init__(self, topic: Topic) -> None:
        self._columns: dict[str, Callable[[Any], Any]] = {}
        self._key: Callable[[Any], Any] = text_or_base64
        self._typed = topic.schema is not None
        self._moment: datetime | None = None
        self._zulu = ""
        if topic.schema is not None:
            found = {field.name: _jsonable(field.type) for field in topic.schema}
            self._columns = {name: made for name, made in found.items() if made is not None}
            self._key = self._columns.get(topic.key or "", _same)

    def key(self, record: Record) -> Any:
        return None if record.key is None else self._key(record.key)

    def value(self, record: Record) -> Any:
        """The row, or the text of the bytes; None for a tombstone."""
        value = record.value
        if value is None:
            return None
        if not self._typed:
            return text_or_base64(value)
        for name, convert in self._columns.items():
            if value[name] is not None:
                value[name] = convert(value[name])
        return value

    def line(self, record: Record) -> str:
        """One line of JSON with the seven fields of a record."""
        if record.timestamp is not self._moment:  # the records of a batch share it
            self._moment, self._zulu = record.timestamp, zulu(record.timestamp)
        return _compact(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "key": self.key(record),
                "value": self.value(record),
                "timestamp": self._zulu,
                "headers": headers_json(record),
            }
        )


def headers_json(record: Record) -> list[list[Any]]:
    """The headers as pairs, since a name may occur twice."""
    return [
        [name, None if value is None else text_or_base64(value)] for name, value in record.headers
    ]


def text_or_base64(data: bytes) -> Any:
    """The text if the bytes are UTF-8, else {"base64": "…"}."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def zulu(moment: datetime | str) -> str:
    """A time in UTC in ISO 8601; one without a zone stays without, and text stays as it is."""
    if isinstance(moment, str):
        return moment
    text = moment.isoformat()
    return text[:-6] + "Z" if text.endswith("+00:00") else text


def _same(value: Any) -> Any:
    return value


def _jsonable(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that converts a column's values to JSON; None if they are JSON already."""
    types = pa.types
    if types.is_timestamp(kind):
        return zulu
    if types.is_date(kind):
        return lambda day: day if isinstance(day, str) else date.isoformat(day)
    if types.is_decimal(kind):
        return Decimal.__str__
    if types.is_binary(kind):
        return lambda data: base64.b64encode(data).decode()
    if types.is_floating(kind):
        return finite
    if types.is_list(kind):
        item = _optional(_jsonable(kind.value_type))
        return lambda values: [item(value) for value in values]
    if types.is_map(kind):
        key, item = _optional(_jsonable(kind.key_type)), _optional(_jsonable(kind.item_type))
        return lambda pairs: {_map_key(key(k)): item(v) for k, v in pairs}
    if types.is_struct(kind):
        fields = {field.name: _optional(_jsonable(field.type)) for field in kind}
        return lambda row: {name: convert(row[name]) for name, convert in fields.items()}
    return None


def _optional(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if convert is None:
        return _same
    return lambda value: None if value is None else convert(value)


def _map_key(key: Any) -> str:
    return key if isinstance(key, str) else _compact(key)
