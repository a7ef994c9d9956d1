"""JSON lines as records, as `headrace produce` takes them."""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Callable
from typing import Any

from headrace.errors import InvalidRecord
from headrace.log import Header, Topic

Sent = tuple[Any, Any, list[Header] | None, int | None]
"""A record as `send` takes it: value, key, headers, partition."""

_FIELDS = ("key", "value", "headers", "partition", "topic", "offset", "timestamp")
_KNOWN = frozenset(_FIELDS)

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


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
