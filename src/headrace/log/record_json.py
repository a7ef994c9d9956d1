"""Records as JSON: what `consume --json` prints and the studio answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.log.record import Record
from headrace.log.state import Topic
from headrace.schema.json_text import finite

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


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
        return _compact(self.fields(record))

    def fields(self, record: Record) -> dict[str, Any]:
        """The seven fields of a record, ready for JSON."""
        if record.timestamp is not self._moment:  # the records of a batch share it
            self._moment, self._zulu = record.timestamp, zulu(record.timestamp)
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "key": self.key(record),
            "value": self.value(record),
            "timestamp": self._zulu,
            "headers": headers_json(record),
        }


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
