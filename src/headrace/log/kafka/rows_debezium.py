"""Change events of Debezium as rows, which Spark with `plan.kafka.debezium` reads as the same."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from headrace.log.kafka.debezium import (
    DECIMAL,
    FORMAT,
    MICROS,
    NO_ROW,
    NOT_CHANGE,
    OPERATIONS,
    PLACEHOLDER,
    PLACEHOLDER_BYTES,
    TRUNCATE,
    UNREAD,
    UNSENT,
    check_change_columns,
    is_converted,
)
from headrace.log.kafka.rows_bytes import Garbage, HeadersOf, no_headers
from headrace.log.kafka.rows_confluent import read_only
from headrace.log.kafka.rows_json import JsonRows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = date(1970, 1, 1)


class DebeziumRows(JsonRows):
    """Events with Kafka Connect's schemas or without. The column `key` is left null."""

    def __init__(self, schema: pa.Schema) -> None:
        check_change_columns(schema)
        super().__init__(schema)

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        raise read_only(FORMAT)

    def decode(
        self, values: Sequence[bytes], odd: set[str], headers: HeadersOf = no_headers
    ) -> list[pa.Array]:
        rows = [orjson.dumps(self._event(i, value), _text) for i, value in enumerate(values)]
        return super().decode(rows, set())  # a table may have more columns than anybody declares

    def _event(self, index: int, value: bytes) -> dict[str, Any]:
        """An event as the JSON of a row."""
        try:
            found = json.loads(value, parse_float=Decimal)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Garbage(index, NOT_CHANGE)
        wrapped = isinstance(found.get("payload"), dict)
        event = found["payload"] if wrapped else found
        op = event.get("op")
        if op == "t":
            raise Garbage(index, TRUNCATE)
        if op not in OPERATIONS:
            raise Garbage(index, NOT_CHANGE)
        if not isinstance(event.get("before" if op == "d" else "after"), dict):
            raise Garbage(index, NO_ROW)
        described = _described(found.get("schema")) if wrapped else {}
        row: dict[str, Any] = {"op": op, "ts_ms": event.get("ts_ms"), "source": _source(event)}
        for name in ("before", "after"):
            image = event.get(name)
            if name in self._names and isinstance(image, dict):
                row[name] = self._image(index, name, image, described)
        return {name: row.get(name) for name in self._schema.names}

    def _image(
        self, index: int, name: str, image: Mapping[str, Any], described: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The row before or after a change."""
        made = {}
        for field in self._schema.field(name).type:
            raw = image.get(field.name)
            unsent = raw in (PLACEHOLDER, PLACEHOLDER_BYTES, [PLACEHOLDER])
            if unsent and name == "after":
                raise Garbage(index, f"{UNSENT}{field.name}")
            value = None if unsent else raw
            if value is not None and is_converted(field.type):
                value = _converted(raw, described.get(field.name, {}), field.type)
                if value is None and name == "after":
                    raise Garbage(index, f"{UNREAD}{field.name} {_shown(raw)}")
            made[field.name] = value
        return made


def key_text(key: bytes | None) -> str | None:
    """The key of a record as text, without its schema."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return key.hex().upper()
    try:
        found = orjson.loads(key)
    except ValueError:
        return text
    payload = found.get("payload") if isinstance(found, dict) else None
    return text if payload is None else orjson.dumps(payload).decode()


def _described(schema: Any) -> dict[str, Any]:
    """The type that Kafka Connect's schema gives each column."""
    for field in (schema or {}).get("fields") or ():
        if field.get("field") == "after":
            return {each.get("field"): each for each in field.get("fields") or ()}
    return {}


def _source(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """The origin of a change, in the fields that headrace's own captures write."""
    given, done = event.get("source"), event.get("transaction") or {}
    if not isinstance(given, dict):
        return None
    names = ("connector", "name", "db", "schema", "table", "ts_ms")
    millis, micros = given.get("ts_ms"), given.get("ts_us")
    place = f"{given['file']}:{given.get('pos')}" if given.get("file") else None
    snapshot = str(given.get("snapshot")).lower()
    return {
        **{name: given.get(name) for name in names},
        "position": _first(given.get("lsn"), place, given.get("change_lsn"), given.get("scn")),
        "tx": _first(done.get("id"), given.get("txId"), given.get("gtid")),
        "order": done.get("total_order"),
        "snapshot": {"none": None, "false": None, "incremental": snapshot}.get(snapshot, "initial"),
        "ts_us": millis * 1000 if micros is None and millis is not None else micros,
    }


def _first(*values: Any) -> str | None:
    return next((str(value) for value in values if value is not None), None)


def _converted(raw: Any, described: Mapping[str, Any], kind: pa.DataType) -> Any:
    """A value as the JSON of a row has it; None if it is not one of the declared type."""
    try:
        if pa.types.is_date(kind):
            return str(_DAY + timedelta(raw) if isinstance(raw, int) else date.fromisoformat(raw))
        if pa.types.is_decimal(kind):
            return _decimal(raw, described, kind)
        if isinstance(raw, int):
            factor, divisor = MICROS[described["name"]]
            moment = _EPOCH + timedelta(microseconds=raw * factor // divisor)
        else:
            given = datetime.fromisoformat(raw)
            moment = given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z" if kind.tz else "")
    except (KeyError, ValueError, TypeError, ArithmeticError):
        return None


def _decimal(raw: Any, described: Mapping[str, Any], kind: pa.DataType) -> str | None:
    if isinstance(raw, dict):
        number = Decimal(_integer(raw["value"])).scaleb(-int(raw["scale"]))
    elif described.get("name") == DECIMAL:
        number = Decimal(_integer(raw)).scaleb(-int(described["parameters"]["scale"]))
    else:
        number = Decimal(raw)
    fits = number == round(number, kind.scale) and number.is_finite()
    return f"{number:.{kind.scale}f}" if fits else None


def _integer(text: str) -> int:
    return int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)


def _shown(raw: Any) -> str:
    return (raw if isinstance(raw, str) else json.dumps(raw, default=str, separators=(",", ":")))[
        :50
    ]


def _text(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else str(value)
