"""Change events in the shapes that Debezium's documents show, with schemas or without."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

SCHEMA = "id bigint, name string, price decimal(10, 2), at timestamp_ntz, seen timestamp, day date"

FIELDS: list[dict[str, Any]] = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
    {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "field": "price",
    },
    {
        "type": "int64",
        "optional": True,
        "name": "io.debezium.time.MicroTimestamp",
        "version": 1,
        "field": "at",
    },
    {
        "type": "string",
        "optional": True,
        "name": "io.debezium.time.ZonedTimestamp",
        "version": 1,
        "field": "seen",
    },
    {
        "type": "int32",
        "optional": True,
        "name": "io.debezium.time.Date",
        "version": 1,
        "field": "day",
    },
    {"type": "int32", "optional": True, "field": "pieces"},
]
"""The columns of a table of products, one more than a pipeline declares."""

_ENVELOPE = "dbserver.inventory.products"


def digits(number: str) -> str:
    """A decimal as Kafka Connect writes it: the bytes of its digits in Base64."""
    value = Decimal(number)
    unscaled = int(value.scaleb(-int(value.as_tuple().exponent)))
    size = (8 + (unscaled + (unscaled < 0)).bit_length()) // 8
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


def product(id: int, name: str = "Chair", price: str = "19.90", **more: Any) -> dict[str, Any]:
    """A row as Debezium writes it."""
    return {
        "id": id,
        "name": name,
        "price": digits(price),
        "at": 1_767_225_600_123_456,
        "seen": "2026-01-01T00:00:00.5Z",
        "day": 20_454,
        "pieces": 3,
        **more,
    }


def key(id: int, *, schemas: bool = True) -> bytes:
    """The key of a record."""
    payload = {"id": id}
    if not schemas:
        return _json(payload)
    fields = [FIELDS[0]]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": f"{_ENVELOPE}.Key"}
    return _json({"schema": schema, "payload": payload})


def change(
    op: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    *,
    millis: int,
    schemas: bool = True,
    **source: Any,
) -> bytes:
    """The value of a record."""
    event = {
        "before": before,
        "after": after,
        "source": {
            "version": "3.2.0.Final",
            "connector": "postgresql",
            "name": "dbserver",
            "ts_ms": millis,
            "snapshot": "true" if op == "r" else "false",
            "db": "shop",
            "sequence": '["24023119","24023128"]',
            "ts_us": millis * 1000,
            "ts_ns": millis * 1_000_000,
            "schema": "inventory",
            "table": "products",
            "txId": 555,
            "lsn": 24_023_128,
            "xmin": None,
            **source,
        },
        "transaction": None,
        "op": op,
        "ts_ms": millis + 20,
        "ts_us": (millis + 20) * 1000,
        "ts_ns": (millis + 20) * 1_000_000,
    }
    if not schemas:
        return _json(event)
    rows = [
        {
            "type": "struct",
            "fields": FIELDS,
            "optional": True,
            "name": f"{_ENVELOPE}.Value",
            "field": name,
        }
        for name in ("before", "after")
    ]
    others = [
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    schema = {
        "type": "struct",
        "fields": [*rows, *others],
        "optional": False,
        "name": f"{_ENVELOPE}.Envelope",
        "version": 2,
    }
    return _json({"schema": schema, "payload": event})


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
