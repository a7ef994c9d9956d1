"""CloudEvents as rows, which Spark with `plan.kafka.cloudevents` reads as the same values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from headrace.log.kafka.cloudevents import (
    BAD_ATTRIBUTE,
    BAD_DATA,
    NO_VERSION,
    NOT_JSON,
    PREFIX,
    VERSION,
    attribute,
    check_event_columns,
    header,
)
from headrace.log.kafka.rows_bytes import Garbage, HeadersOf, no_headers
from headrace.log.kafka.rows_confluent import read_only
from headrace.log.kafka.rows_json import JsonRows


class CloudEventRows(JsonRows):
    """Events in structured or binary mode."""

    def __init__(self, schema: pa.Schema) -> None:
        check_event_columns(schema)
        super().__init__(schema)

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        raise read_only("cloudevents")

    def decode(
        self, values: Sequence[bytes], odd: set[str], headers: HeadersOf = no_headers
    ) -> list[pa.Array]:
        rows = [self._flat(i, value, headers(i)) for i, value in enumerate(values)]
        try:
            # An event has more attributes than anybody declares.
            return super().decode(rows, set())
        except Garbage as garbage:
            of_data = garbage.column is None or attribute(garbage.column) is None
            reason = BAD_DATA if of_data else f"{BAD_ATTRIBUTE}{garbage.column}"
            raise Garbage(garbage.index, reason, garbage.detail) from None

    def _flat(self, index: int, value: bytes, headers: Sequence[tuple[str, bytes | None]]) -> bytes:
        """An event as the JSON of a row."""
        there = {name.lower(): text for name, text in reversed(headers)}
        binary = there.get(f"{PREFIX}{VERSION}") is not None
        event = {} if binary else _parsed(value)
        if event is None:
            raise Garbage(index, NOT_JSON)
        row: dict[str, Any] = {}
        data: Any = event.get("data") or {}
        for field in self._schema:
            if (name := attribute(field.name)) is None:
                data = _parsed(value) if binary and data == {} else data
                if not isinstance(data, dict):
                    raise Garbage(index, BAD_DATA)
                row[field.name] = data.get(field.name)
            elif binary:
                row[field.name] = _attribute(there.get(header(field.name)), field.type)
            else:
                row[field.name] = event.get(name)
        version = (
            _attribute(there[f"{PREFIX}{VERSION}"], pa.string()) if binary else event.get(VERSION)
        )
        if not str(version).startswith("1."):
            raise Garbage(index, f"{NO_VERSION}{'missing' if version is None else version}")
        return orjson.dumps(row)


def _parsed(value: bytes) -> dict[str, Any] | None:
    """The object that some bytes are the JSON of, if they are."""
    try:
        found = orjson.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _attribute(text: bytes | None, kind: pa.DataType) -> Any:
    """The value of an attribute in a header, which is text."""
    if text is None:
        return None
    found = text.decode(errors="replace")
    is_text = not (pa.types.is_integer(kind) or pa.types.is_boolean(kind))
    try:
        return found if is_text else orjson.loads(found)
    except ValueError:
        return found  # the check of its column says what is wrong
