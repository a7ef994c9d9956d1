"""Projection of Avro that others wrote onto a topic's columns.

A record is read with the schema it was written in, and Avro resolves that to a reader's schema:
the declared columns, in their order, with the writer's types. Columns that the writer lacks are
null. So a column may be widened afterwards, and no value changes its meaning: Avro by itself would
read a time in milliseconds as one in microseconds.
"""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from headrace.log.kafka.avro import avro_type
from headrace.schema.ddl import format_type
from headrace.schema.widening import fits

READ = "_read"
"""A column of every row that was read; it is null in no other case."""

_SIMPLE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_UNREAD = {
    "time-millis",
    "time-micros",
    "timestamp-nanos",
    "local-timestamp-nanos",
    "duration",
    "big-decimal",
}
_MOST_DIGITS = 38


class Unfit(ValueError):
    """A schema whose records cannot be read as rows of a topic; the text says why."""


class Projection:
    """The schemas to read a record with: the writer's, and the reader's with the topic's columns.

    Both are parsed; `writer` and `reader` are their texts.
    """

    def __init__(self, text: str, columns: pa.Schema) -> None:
        self._named: dict[str, Any] = {}
        self._defined: set[str] = set()
        self._records = 0
        try:
            plain = json.loads(text, object_hook=_without_uuid)
            parsed = fastavro.parse_schema(plain, self._named)
        except (ValueError, TypeError, KeyError, SchemaParseException) as error:
            raise Unfit(f"it cannot be parsed: {error}") from None
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise Unfit("it is not a record")
        made = self._record("", parsed, pa.struct(list(columns)))
        made["fields"].append({"name": READ, "type": "int", "default": 1})
        self.writer, self.reader = json.dumps(plain), json.dumps(made)
        self.parsed_writer = parsed
        self.parsed_reader = fastavro.parse_schema(made)

    def _type(self, path: str, given: Any, wanted: pa.DataType) -> Any:
        branches = [self._found(each) for each in (given if isinstance(given, list) else [given])]
        optional, branches = "null" in branches, [each for each in branches if each != "null"]
        if len(branches) != 1:
            raise Unfit(f"{path!r} is a union of {len(branches)} types")
        (branch,) = branches
        kind = branch["type"] if isinstance(branch, dict) else branch
        if kind == "record" and pa.types.is_struct(wanted):
            made: Any = self._record(f"{path}.", branch, wanted)
        elif kind == "array" and pa.types.is_list(wanted):
            made = {"type": kind, "items": self._type(path, branch["items"], wanted.value_type)}
        elif kind == "map" and pa.types.is_map(wanted):
            made = {"type": kind, "values": self._type(path, branch["values"], wanted.item_type)}
        else:
            made = self._leaf(path, kind, branch, wanted)
        return ["null", made] if optional else made

    def _record(self, path: str, given: dict[str, Any], wanted: pa.DataType) -> dict[str, Any]:
        there = {field["name"]: field["type"] for field in given["fields"]}
        # A record may be read in several places, with other columns in each. It has no namespace,
        # which the types in it would take on.
        self._records += 1
        return {
            "type": "record",
            "name": f"reader_{self._records}",
            "aliases": [given["name"]],
            "fields": [self._field(path, field, there) for field in wanted],
        }

    def _field(self, path: str, field: pa.Field, there: dict[str, Any]) -> dict[str, Any]:
        name = f"{path}{field.name}"
        if field.name in there:
            return {"name": field.name, "type": self._type(name, there[field.name], field.type)}
        return {
            "name": field.name,
            "type": avro_type(f"lacking.{name}", field.type),
            "default": None,
        }

    def _leaf(self, path: str, kind: str, given: Any, wanted: pa.DataType) -> Any:
        found = _arrow_type(kind, given if isinstance(given, dict) else {})
        if found is None or not fits(found, wanted):
            name = given.get("logicalType", kind) if isinstance(given, dict) else kind
            raise Unfit(f"{path!r} is {name}, and not {format_type(wanted)}")
        if kind not in ("enum", "fixed"):
            return given
        if given["name"] in self._defined:
            return given["name"]
        self._defined.add(given["name"])
        return given

    def _found(self, given: Any) -> Any:
        """A type, instead of the name of one."""
        return self._named.get(given, given) if isinstance(given, str) else given


def _arrow_type(kind: str, given: dict[str, Any]) -> pa.DataType | None:
    """The type of a value as Spark and fastavro read it; None if they cannot."""
    logical = given.get("logicalType")
    if logical in _UNREAD:
        return None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = given.get("precision", 0), given.get("scale", 0)
        return pa.decimal128(precision, scale) if 1 <= precision <= _MOST_DIGITS else None
    return _LOGICAL.get(logical or "") or _SIMPLE.get(kind)


def _without_uuid(found: dict[str, Any]) -> dict[str, Any]:
    """An object without the logical type of a UUID, which Spark reads as text."""
    return {k: v for k, v in found.items() if (k, v) != ("logicalType", "uuid")}
