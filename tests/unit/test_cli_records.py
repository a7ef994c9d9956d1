"""`produce` reads the format that `consume --json` prints."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from headrace.backfill.json_lines import line_reader
from headrace.cli.consuming import Printer
from headrace.errors import InvalidRecord
from headrace.log import Record, Topic
from headrace.log.record_json import RecordFormat, text_or_base64, zulu
from headrace.schema.ddl import parse_schema

MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)
RAW = Topic("raw", 1)


def typed(schema: str, key: str | None = None) -> Topic:
    return Topic("typed", 1, parse_schema(schema), key)


def record(value: Any, key: Any = None, headers: Any = ()) -> Record:
    return Record("t", 0, 7, key, value, headers, MOMENT, 1)


def read(line: str | bytes, topic: Topic = RAW) -> Any:
    return line_reader(topic)(line if isinstance(line, bytes) else line.encode())


# Reading raw records


def test_a_raw_record_needs_only_a_value() -> None:
    assert read('{"value": "x"}') == ("x", None, None, None)


def test_a_null_value_is_a_tombstone() -> None:
    assert read('{"key": "a", "value": null}') == (None, "a", None, None)


def test_headers_come_as_an_object_or_as_pairs() -> None:
    assert read('{"value": 1, "headers": {"a": "b", "n": null}}')[2] == [("a", b"b"), ("n", None)]
    assert read('{"value": 1, "headers": [["a", "b"], ["a", 2]]}')[2] == [("a", b"b"), ("a", b"2")]


def test_bytes_are_written_as_base64() -> None:
    ff = {"base64": "/w=="}
    line = {"key": ff, "value": {"base64": "AAE="}, "headers": {"h": ff}}
    assert read(json.dumps(line)) == (b"\x00\x01", b"\xff", [("h", b"\xff")], None)


def test_an_object_with_more_than_base64_is_just_json() -> None:
    assert read('{"value": {"base64": "AAE=", "name": "x"}}')[0] == {"base64": "AAE=", "name": "x"}


def test_what_consume_prints_besides_is_passed_over() -> None:
    line = RecordFormat(RAW).line(record(b"b", b"a"))
    assert read(line) == ("b", "a", None, 0)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON: Expecting property name.* at character 2"),
        ("[1]", "not a JSON object"),
        ('"text"', "not a JSON object"),
        ('{"key": "a"}', 'has no "value"'),
        ('{"value": 1, "hedaers": {}}', "no field 'hedaers'"),
        ('{"value": 1, "headers": 5}', "headers are neither"),
        ('{"value": 1, "headers": [["a"]]}', "headers are neither"),
        ('{"value": 1, "partition": "2"}', "partition is not a number"),
        ('{"value": {"base64": "*"}}', "not base64"),
        (b'{"value": "\xff"}', "not UTF-8"),
        ("[" * 100_000, "cannot be read as JSON"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_the_reason(
    line: str | bytes, reason: str
) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        read(line)


def test_a_misspelt_field_is_named_with_its_likely_spelling() -> None:
    with pytest.raises(InvalidRecord) as refused:
        read('{"value": 1, "hedaers": {}}')
    assert refused.value.hint == "Did you mean 'headers'?"


# Reading rows


def test_a_line_for_a_typed_topic_is_the_row() -> None:
    assert read('{"id": 1}', typed("id int")) == ({"id": 1}, None, None, None)


def test_a_typed_topic_has_tombstones_if_no_column_is_called_value() -> None:
    topic = typed("id int, key string", key="id")
    assert read('{"key": 1, "value": null}', topic) == (None, 1, None, None)
    assert read('{"key": 1, "value": {"id": 1}}', topic)[0] == {"id": 1}


def test_a_row_with_a_column_called_value_is_a_row() -> None:
    topic = typed("key string, value string", key="key")
    assert read('{"key": "a", "value": null}', topic)[0] == {"key": "a", "value": None}


# Printing


def test_a_record_is_printed_with_exactly_seven_fields() -> None:
    line = json.loads(RecordFormat(RAW).line(record(b"v", b"k", (("h", b"\xff"), ("h", None)))))
    assert line == {
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "key": "k",
        "value": "v",
        "timestamp": "2026-01-31T12:00:00Z",
        "headers": [["h", {"base64": "/w=="}], ["h", None]],
    }


def test_utf8_is_shown_as_text_and_other_bytes_as_base64() -> None:
    assert text_or_base64("été".encode()) == "été"
    assert text_or_base64(b"\xff\x00") == {"base64": base64.b64encode(b"\xff\x00").decode()}


def test_a_tombstone_is_null() -> None:
    assert json.loads(RecordFormat(RAW).line(record(None, b"k")))["value"] is None
    assert json.loads(RecordFormat(typed("a int", "a")).line(record(None, 1)))["value"] is None


def test_times_in_utc_end_in_z_and_times_without_a_zone_do_not() -> None:
    assert zulu(MOMENT) == "2026-01-31T12:00:00Z"
    assert zulu(datetime(2026, 1, 31, 12, 0, 0, 5)) == "2026-01-31T12:00:00.000005"


SCHEMA = """
    flag boolean, number bigint, real double, name string, data binary, day date, at timestamp,
    local timestamp_ntz, price decimal(10,2), tags array<string>, days array<date>,
    counts map<string, int>, place struct<lat: double, at: timestamp>, none string
"""
ROW = {
    "flag": True,
    "number": 1 << 60,
    "real": 1.5,
    "name": "été",
    "data": b"\xff\x00",
    "day": date(2026, 1, 31),
    "at": MOMENT,
    "local": MOMENT.replace(tzinfo=None),
    "price": Decimal("12.50"),
    "tags": ["a", None],
    "days": [date(2026, 1, 31)],
    "counts": [("a", 1), ("b", None)],
    "place": {"lat": 1.0, "at": MOMENT},
    "none": None,
}


def test_a_row_is_printed_as_an_object_with_json_for_every_type() -> None:
    value = json.loads(RecordFormat(typed(SCHEMA)).line(record(dict(ROW))))["value"]
    assert value == {
        "flag": True,
        "number": 1 << 60,
        "real": 1.5,
        "name": "été",
        "data": "/wA=",
        "day": "2026-01-31",
        "at": "2026-01-31T12:00:00Z",
        "local": "2026-01-31T12:00:00",
        "price": "12.50",
        "tags": ["a", None],
        "days": ["2026-01-31"],
        "counts": {"a": 1, "b": None},
        "place": {"lat": 1.0, "at": "2026-01-31T12:00:00Z"},
        "none": None,
    }


def test_a_key_is_printed_like_its_column() -> None:
    topic = typed("at timestamp", key="at")
    assert json.loads(RecordFormat(topic).line(record(None, MOMENT)))["key"] == zulu(MOMENT)


def test_what_json_has_no_number_for_is_printed_as_text() -> None:
    line = RecordFormat(typed("x double, y array<double>")).line(
        record({"x": float("nan"), "y": [float("inf"), float("-inf")]})
    )
    value = json.loads(line, parse_constant=pytest.fail)["value"]
    assert value == {"x": "NaN", "y": ["Infinity", "-Infinity"]}


def test_a_record_can_neither_break_its_line_nor_steer_the_terminal() -> None:
    printer = Printer(RAW, json=False, headers=True, limit=None)
    line = printer._readable(record(b"a\n\x1b[2Jb\xc2\x9b", b"\t", (("h", b"\x07"),)))
    assert line.endswith(r"  \t  a\n\x1b[2Jb\x9b  h=\x07")
