"""The Avro schema of a topic's rows, for Spark's `from_avro`."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidSchema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SIMPLE: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}


def avro_schema(schema: pa.Schema) -> str:
    """The Avro schema of a topic's rows as JSON, the argument of `from_avro`."""
    return json.dumps(_record("topLevelRecord", schema))


def avro_type(path: str, kind: pa.DataType) -> Any:
    """The Avro type of a nullable column."""
    return _type(path, kind, True)


def _record(name: str, fields: Any) -> dict[str, Any]:
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise InvalidSchema(
                f"The column {field.name!r} cannot be written as Avro",
                hint="Avro names have only letters, digits and underscores; use format=json",
                column=field.name,
            )
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field.name, "type": _type(f"{name}.{field.name}", field.type, field.nullable)}
            for field in fields
        ],
    }


def _type(path: str, kind: pa.DataType, nullable: bool) -> Any:
    if pa.types.is_decimal(kind):
        found: Any = {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    elif pa.types.is_list(kind):
        found = {"type": "array", "items": _type(f"{path}.item", kind.value_type, True)}
    elif pa.types.is_map(kind):
        found = {"type": "map", "values": _type(f"{path}.value", kind.item_type, True)}
    elif pa.types.is_struct(kind):
        found = _record(path, kind)
    else:
        found = _SIMPLE[kind]
    return ["null", found] if nullable else found
