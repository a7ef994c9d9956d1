"""CloudEvents as rows, without a broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import InvalidSchema
from headrace.log.kafka.rows_bytes import Garbage
from headrace.log.kafka.rows_cloudevents import CloudEventRows
from headrace.schema.ddl import parse_schema

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = parse_schema(
    "ce_id string, ce_time timestamp, ce_datacontenttype string, ce_retries bigint, url string, "
    "price double"
)
ATTRIBUTES: dict[str, Any] = {
    "specversion": "1.0",
    "id": "1",
    "source": "/shop",
    "type": "click",
    "time": "2026-01-31T12:00:00Z",
    "datacontenttype": "application/json",
    "retries": 3,
}
DATA = {"url": "a", "price": 1.5, "other": [1]}
ROW = {
    "ce_id": "1",
    "ce_time": NOON,
    "ce_datacontenttype": "application/json",
    "ce_retries": 3,
    "url": "a",
    "price": 1.5,
}


def structured(data: Any = DATA, **attributes: Any) -> bytes:
    return json.dumps({**ATTRIBUTES, **attributes, "data": data}).encode()


def headers(**attributes: Any) -> list[tuple[str, bytes | None]]:
    names = {"datacontenttype": "content-type"}
    given = {**ATTRIBUTES, **attributes}
    return [(names.get(k, f"ce_{k}"), str(v).encode()) for k, v in given.items()]


def read(value: bytes, *given: tuple[str, bytes | None]) -> dict[str, Any]:
    odd: set[str] = set()
    found = CloudEventRows(SCHEMA).decode([value], odd, lambda _: given)
    assert odd == set()
    (row,) = pa.table(found, names=SCHEMA.names).to_pylist()
    made: dict[str, Any] = row
    return made


def test_both_modes_give_the_same_row() -> None:
    assert read(structured()) == ROW
    assert read(json.dumps(DATA).encode(), *headers()) == ROW


def test_an_event_without_data_has_its_attributes() -> None:
    event = json.dumps(ATTRIBUTES).encode()
    assert read(event) == {**ROW, "url": None, "price": None}


@pytest.mark.parametrize(
    ("value", "given", "reason"),
    [
        (b"{", [], "not the JSON of a CloudEvent"),
        (b"{}", [], "specversion is missing"),
        (structured(specversion="0.3"), [], "specversion is 0.3"),
        (b"<xml/>", headers(), "its data is not JSON"),
        (structured(data="text"), [], "its data is not JSON"),
        (b"{}", headers(retries="many"), "ce_retries"),
        (b"{}", headers(specversion="2.0"), "specversion is 2.0"),
    ],
)
def test_what_is_no_event_is_named_with_its_reason(
    value: bytes, given: list[tuple[str, bytes | None]], reason: str
) -> None:
    with pytest.raises(Garbage, match=reason):
        read(value, *given)


@pytest.mark.parametrize("column", ["ce_data string", "ce_subject struct<a: int>"])
def test_attributes_are_no_data_and_not_nested(column: str) -> None:
    with pytest.raises(InvalidSchema):
        CloudEventRows(parse_schema(column))
