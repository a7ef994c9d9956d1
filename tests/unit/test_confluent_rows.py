"""Rows in the Confluent wire format, and the schemas that they are read with, without a broker."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from headrace.errors import AccessDenied, InvalidSchema, LogError, RegistryUnavailable
from headrace.log.kafka import registry as client
from headrace.log.kafka.avro_projection import Projection, Unfit
from headrace.log.kafka.confluent import header_of
from headrace.log.kafka.rows_bytes import Garbage
from headrace.log.kafka.rows_confluent import ConfluentAvroRows, ConfluentJsonRows
from headrace.schema.ddl import parse_schema
from tests.registry import Registry, serving

CANARY = "c4n4ry-7f3a"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as made:
        yield made


def client_of(registry: Registry, **more: str) -> client.Registry:
    return client.Registry({"url": registry.url, **more}, 5)


def record(*fields: tuple[str, Any], name: str = "R") -> str:
    made = [{"name": field, "type": kind} for field, kind in fields]
    return json.dumps({"type": "record", "name": name, "fields": made})


def written(number: int, schema: str, row: dict[str, Any]) -> bytes:
    fastavro.schemaless_writer(out := io.BytesIO(), json.loads(schema), row)
    return header_of(number) + out.getvalue()


def read(columns: str, registry: Registry, *values: bytes) -> list[dict[str, Any]]:
    schema = parse_schema(columns)
    found = ConfluentAvroRows(schema, client_of(registry)).decode(values, set())
    rows: list[dict[str, Any]] = pa.table(found, names=schema.names).to_pylist()
    return rows


def test_columns_are_found_by_name_in_nested_records_lists_and_maps(registry: Registry) -> None:
    color = {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}
    place = {
        "type": "record",
        "name": "Place",
        "fields": [
            {"name": "zip", "type": "string"},
            {"name": "color", "type": color},
            {"name": "number", "type": ["null", "int"]},
        ],
    }
    schema = record(
        ("skipped", "double"),
        ("home", ["null", place]),
        ("work", {"type": "array", "items": "Place"}),
        ("paint", {"type": "map", "values": "Color"}),
        ("id", {"type": "string", "logicalType": "uuid"}),
        ("day", {"type": "int", "logicalType": "date"}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("count", "int"),
    )
    number = registry.register("s", {"schema": schema})
    here = {"zip": "1", "color": "red", "number": 7}
    row = {
        "skipped": 1.0,
        "home": here,
        "work": [here, {**here, "number": None}],
        "paint": {"door": "blue"},
        "id": UUID(int=1),
        "day": date(2026, 1, 31),
        "at": NOON,
        "count": 3,
    }
    columns = (
        "at timestamp, count bigint, id string, day date, paint map<string, string>, "
        "home struct<number: bigint, color: string>, work array<struct<zip: string, no: int>>, "
        "new array<struct<x: int>>"
    )
    assert read(columns, registry, written(number, schema, row)) == [
        {
            "at": NOON,
            "count": 3,
            "id": str(UUID(int=1)),
            "day": date(2026, 1, 31),
            "paint": [("door", "blue")],
            "home": {"number": 7, "color": "red"},
            "work": [{"zip": "1", "no": None}] * 2,
            "new": None,
        }
    ]


@pytest.mark.parametrize(
    ("kind", "column", "reason"),
    [
        ("string", "bigint", "'x' is string, and not bigint"),
        ("long", "int", "'x' is long, and not int"),
        ("long", "timestamp", "'x' is long, and not timestamp"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint", "'x' is timestamp-nanos"),
        ({"type": "int", "logicalType": "time-millis"}, "int", "'x' is time-millis"),
        (["int", "string"], "int", "'x' is a union of 2 types"),
        ({"type": "array", "items": "string"}, "array<int>", "'x' is string, and not int"),
        ("string", "struct<y: int>", "'x' is string, and not struct<y: int>"),
        ("Elsewhere", "string", "it cannot be parsed: .*Elsewhere"),
    ],
)
def test_a_schema_without_the_declared_columns_is_unfit(
    kind: Any, column: str, reason: str
) -> None:
    with pytest.raises(Unfit, match=reason):
        Projection(record(("x", kind)), parse_schema(f"x {column}"))


def test_a_schema_that_is_no_record_is_unfit() -> None:
    with pytest.raises(Unfit, match="not a record"):
        Projection('"string"', parse_schema("x string"))
    with pytest.raises(InvalidSchema, match="cannot be written as Avro"):
        ConfluentAvroRows(parse_schema("`a b` string"), None)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\0\0\0\0", "shorter than the 5 bytes"),
        (b"\1\0\0\0\1\2a", "first byte is not the 0"),
        (b"\0\0\0\0\2\2a", "no schema 2"),
        (b"\0\0\0\0\1\4a", "not Avro of schema 1"),
        (b"\0\0\0\0\1\2ab", "1 bytes are left over"),
    ],
)
def test_bytes_that_are_no_row_are_named_with_their_reason(
    registry: Registry, value: bytes, reason: str
) -> None:
    registry.register("s", {"schema": record(("x", "string"))})
    with pytest.raises(Garbage, match=reason) as caught:
        read("x string", registry, b"\0\0\0\0\1\2a", value)
    assert caught.value.index == 1


def test_json_is_read_after_its_header() -> None:
    rows = ConfluentJsonRows(parse_schema("x string"))
    odd: set[str] = set()
    (found,) = rows.decode([header_of(7) + b'{"x": "a", "y": 1}'], odd)
    assert (found.to_pylist(), odd) == (["a"], {"y"})
    with pytest.raises(Garbage, match="first byte"):
        rows.decode([b'{"x": "a"}'], odd)


def test_a_schema_is_asked_for_once_and_a_failure_is_not_kept(registry: Registry) -> None:
    asked = client_of(registry)
    for status, error in ((503, RegistryUnavailable), (429, RegistryUnavailable), (400, LogError)):
        registry.broken = status
        with pytest.raises(error):
            asked.schema(1)
    registry.broken = None
    number = registry.register("t-value", {"schema": record(("x", "int"))})
    assert asked.schema(number) == client.Registered("AVRO", record(("x", "int")))
    assert asked.schema(2) is None
    registry.asked.clear()
    assert asked.schema(number) is not None
    assert asked.schema(2) is None
    assert registry.asked == []


def test_a_topic_begins_with_the_versions_of_its_subject_and_learns_others(
    registry: Registry,
) -> None:
    first, second, other = (record((name, "int")) for name in "abc")
    for schema in (first, second):
        registry.register("a/t-value", {"schema": schema})
    number = registry.register("other", {"schema": other})
    known = client_of(registry)
    assert list(known.schemas("a/t")) == [1, 2]
    assert known.schemas("none") == {}
    known.learn("a/t", number)
    known.learn("a/t", 9)
    found = known.schemas("a/t")
    assert found[number] == client.Registered("AVRO", other)
    assert found[9] is None


def test_a_login_is_sent_and_never_told(registry: Registry) -> None:
    registry.login = f"user:{CANARY}"
    registry.register("s", {"schema": record(("x", "int"))})
    login = {"basic.auth.user.info": f"user:{CANARY}"}
    known = client_of(registry, **login)
    assert known.schema(1) is not None
    assert CANARY not in repr(known)
    registry.login = "another"
    with pytest.raises(AccessDenied) as caught:
        known.schema(2)
    assert CANARY not in f"{caught.value} {caught.value.details}"


def test_another_registry_is_asked_if_the_first_is_down(registry: Registry) -> None:
    registry.register("s", {"schema": record(("x", "int"))})
    both = client.Registry({"url": f"http://127.0.0.1:1,{registry.url}/"}, 5)
    assert both.schema(1) is not None
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        client.Registry({"url": "http://127.0.0.1:1"}, 5).schema(1)


def test_a_server_that_is_no_registry_is_named(registry: Registry) -> None:
    wrong = client.Registry({"url": f"{registry.url}/pages"}, 5)
    assert wrong.schema(1) is None  # our own answers like a registry everywhere
    registry.broken = 404
    with pytest.raises(LogError, match="does not answer /schemas/ids/2 as a schema registry"):
        wrong.schema(2)
