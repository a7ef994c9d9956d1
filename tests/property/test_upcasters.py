"""For any stored data, Spark's columns have the fields that Python reads, and refuse the same."""

from __future__ import annotations

import contextlib
import enum
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import headrace.eventsourcing as es
from headrace.errors import InvalidDomain, UnreadableEvent
from headrace.eventsourcing.columns import ByName, Choice, Many, Nested, Scalar, Shape, fields_of
from headrace.eventsourcing.reading import SLOW, EventReading
from headrace.eventsourcing.upcast import UpcastStep
from tests.property.scripts import quickly
from tests.spark import shared


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Inner:
    name: str
    tags: list[str]
    note: str | None = None


TYPES: tuple[Any, ...] = (
    str, int, float, bool, Decimal, date, datetime, Colour, Level, Inner,
    list[int], list[str | None], tuple[Inner, ...], dict[str, Decimal], dict[str, list[int]],
)  # fmt: skip

GOOD: tuple[Any, ...] = (
    "", "a", "a b", "a b c", "é\U0001f600 \"\\\n", "12", "-7", "99999999999999999999", "1.5", "1e3",
    "true", "red", "2026-01-31", "2026-02-30", "2026-01-31T12:00:00", "0001-01-01T00:00:00+14:00",
    "2026-01-31T12:00:00.000001+05:30", "2026-01-31T24:00:00", "0000-01-01", "12345.678\n",
    0, 1, 2, -1, 2**63 - 1, 2**63, 10**40, 0.5, -0.0, 1e300, True, False, None,
    [], [1, 2], ["a", None], [None], [1.0], {}, {"a": "1.50"}, {"a": [1, None]}, {"a": [1]},
    {"name": "n", "tags": ["x"]}, {"name": "n", "tags": [], "note": None, "more": 1},
    {"name": None, "tags": []}, [{"name": "n", "tags": ["x"], "note": "y"}],
)  # fmt: skip
"""Values of which each is good for some type, and odd for the others."""

ODD = (
    "", " ", "null", "1", '"text"', "[]", "[{}]", "{", "{} x", "{}{}", "{}}", '{"a":1},{"a":1}',
    "{'a':1}", '{"a":NaN}', '{"a":01}', '{"a":1e999}', r'{"a":"\ud800"}', r'{"a":"\ud83d\ude00"}',
    r'{"a":"\\ud800"}', '{"a":1,}', '\ufeff{}', '{"a":"\t"}', ' {"a": 1 , "b": "x"} ', '{"A":1}',
    '{"a":1,"a":2}', '{"b":"x","b":"y"}', '{"a":"x,","b":"a","c":"{"}', '{"a":-0,"b":"a\\u2028"}',
    '{"ab":1,"b":"","a":3}', '{"a":1}\n', '{"a":1234567890123456789}', '{"a":99999999999999999999}',
    '{"a":true,"b":":","c":"2026-01-31"}', '{"a":1,}', '{,"a":1}', '{"a":1"b":2}', '{"a":00}',
)  # fmt: skip

FITTING: dict[type, tuple[Any, ...]] = {
    str: ("", "a", "a b", "a.b c", "12", "-7", "1.5", "true", "false", "é\U0001f600 \"\\\n"),
    int: (0, 1, -1, 2**63 - 1, -(2**63)),
    float: (0, 0.5, -0.0, 1e300, 2**53 + 1, 5e-324, 0.1),
    bool: (True, False),
    Decimal: ("1.50", "-0.000000000000000001", "12345678901234567890.123456789012345678", "0"),
    date: ("2026-01-31", "0001-01-01", "9999-12-31"),
    datetime: (
        "2026-01-31T12:00:00", "2026-01-31T12:00:00.000001+05:30", "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+00:00", "1969-12-31T23:59:59.999999-14:00",
    ),
}  # fmt: skip

FIELDS = ("a", "b", "c")


def backwards(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A function of the user's, which fails for some data."""
    return {"a": data["b"], "b": data["a"], "c": data.get("c")}


STEPS: tuple[UpcastStep, ...] = (
    es.default("a", 1), es.default("b", "x'\\"), es.default("c", True), es.default("a", Decimal(1)),
    es.rename("d", "b"), es.rename("a", "b"), es.rename("A", "a"), es.drop("b"), es.drop("d"),
    es.split("d", ["a", "b"]), es.split("a", ["a"], "."), es.split("d", ["b", "e", "c"], ".b"),
    es.merge(["d", "a"], "b", "\\'"), es.merge(["d", "A"], "a"), es.retype("a", str, int),
    es.retype("a", str, float), es.retype("b", str, bool), es.retype("b", int, str),
    es.retype("a", int, float), es.retype("a", bool, str), es.retype("c", bool, int),
    es.retype("c", date, str), es.retype("d", int, str), es.retype("a", str, Decimal),
)  # fmt: skip


@st.composite
def readings(draw: st.DrawFn) -> EventReading:
    """Two types of events of up to three versions."""
    made = []
    for name in ("one", "two"):
        types = [draw(st.sampled_from(TYPES)) for _ in FIELDS]
        kinds = [kind | None if draw(st.booleans()) else kind for kind in types]
        kind = make_dataclass(name.title(), list(zip(FIELDS, kinds, strict=True)), frozen=True)
        fields = fields_of(kind)
        versions = draw(st.integers(1, 3))
        chain: dict[int, list[UpcastStep]] = {old: [] for old in range(1, versions)}
        for old in reversed(chain):
            for step in draw(st.lists(st.sampled_from(STEPS), max_size=4)):
                with contextlib.suppress(InvalidDomain, TypeError):
                    fields = step.before(fields)
                    chain[old].insert(0, step)
        if chain and not draw(st.integers(0, 4)):
            chain[1].insert(0, es.upcast(backwards))
        made.append(es.event(name, kind, version=versions, upcast=chain))
    try:
        reading = EventReading(tuple(made), ("one", "two"))
        _ = reading.columns
    except InvalidDomain:  # a constant of another type, or two fields
        reading = EventReading((made[0],), ("one", "two"))
    return reading


def stored_rows(reading: EventReading, random: Random, number: int) -> list[dict[str, Any]]:
    """Stored events: most fit a version, some have a field that does not, some are no JSON."""
    versions = [(kind.name, number, fields[0]) for (kind, number), fields in reading._before]
    rows = []
    for _ in range(number):
        name, schema, fields = random.choice(versions)
        if random.random() < 0.1:
            name, schema = random.choice(["one", "two", "three"]), random.randrange(5)
        data = {field: fitting(fields.get(field), random) for field in ("d", "A", *fields)}
        if random.random() < 0.3:
            data[random.choice([*data])] = random.choice(GOOD)
        if random.random() < 0.1:
            del data[random.choice([*data])]
        blanks = (",", ":") if random.random() < 0.7 else None
        text = json.dumps(data, ensure_ascii=random.random() < 0.5, separators=blanks)
        if random.random() < 0.1:
            text = random.choice(ODD)
        rows.append({"type": name, "schema": schema, "data": text})
    return rows


def fitting(shape: Shape | None, random: Random) -> Any:
    """A value of a type, or of any."""
    if shape is None:
        return random.choice(GOOD)
    if shape.optional and random.random() < 0.3:
        return None
    match shape:
        case Choice():
            return random.choice(shape.values)
        case Many():
            return [fitting(shape.item, random) for _ in range(random.randrange(3))]
        case ByName():
            return {name: fitting(shape.item, random) for name in random.sample("xyz", 2)}
        case Nested():
            return {name: fitting(one, random) for name, one in shape.fields}
        case Scalar():
            return random.choice(FITTING[shape.kind])
    raise TypeError(shape)


def in_python(reading: EventReading, row: Mapping[str, Any]) -> Any:
    """A stored event in Python: its fields, None if it is dead, or `other`."""
    if not reading.wants(row):
        return "other"
    try:
        return reading.row(row)
    except UnreadableEvent:
        return None


def in_spark(spark: SparkSession, reading: EventReading, given: pa.Table) -> list[Any]:
    """The same of all events, by Spark's columns."""
    if reading.is_slow:
        columns = (given.column(name).to_pylist() for name in ("type", "schema", "data"))
        given = given.append_column(SLOW, pa.array(reading.upcasted(*columns), pa.string()))
    frame = spark.createDataFrame(given)
    for step in reading.parses:
        frame = frame.selectExpr("*", *(f"{made} AS {name}" for name, made in step.items()))
    found = frame.selectExpr(
        f"{reading.dead} AS _dead",
        f"{reading.other} AS _other",
        *(f"IF({reading.dead}, NULL, {made}) AS `{name}`" for name, made in reading.columns),
    ).toArrow()
    made = []
    for row in found.to_pylist():
        dead, other = row.pop("_dead"), row.pop("_other")
        made.append(None if dead else "other" if other else row)
    return made


def alike(value: Any) -> Any:
    """A value in a form in which both are compared."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, Mapping):
        return [[name, alike(one)] for name, one in value.items()]  # as Arrow has a map
    if isinstance(value, list | tuple):
        return [alike(one) for one in value]
    return value


def explore(spark: SparkSession, examples: int) -> Counter[str]:
    seen: Counter[str] = Counter()

    @quickly(examples, fresh=True)
    @given(readings(), st.randoms(use_true_random=True))
    def agrees(reading: EventReading, random: Random) -> None:
        stored = stored_rows(reading, random, 200)
        schema = pa.schema([("type", pa.string()), ("schema", pa.int32()), ("data", pa.string())])
        table = pa.Table.from_pylist(stored, schema)
        expected = [in_python(reading, row) for row in stored]
        found = in_spark(spark, reading, table)
        for row, one, other in zip(stored, expected, found, strict=True):
            assert alike(other) == alike(one), f"{row}\n{reading.types}\n{other}\n{one}"
        seen.update("dead" if e is None else "other" if e == "other" else "read" for e in expected)
        seen.update(type(s).__name__ for t in reading.types for c in t.chain for s in c)

    agrees()
    return seen


def test_spark_reads_any_stored_event_as_python_does() -> None:
    seen = explore(shared(), 25)
    assert seen["dead"] and seen["other"] and seen["read"]


@pytest.mark.slow
def test_spark_reads_any_stored_event_as_python_does_at_length() -> None:
    seen = explore(shared(), 1_500)
    steps = {"Default", "Rename", "Drop", "Split", "Merge", "Retype", "Upcast"}
    assert steps <= set(seen)


FLAT = (
    '{"a":1,"b":"x","c":true}', '{"c":null,"b":"","a":-5}', '{"a":0,"b":"a,\\"a\\":9"}',
    '{"a":7,"b":"{,","c":false}', '{"a":1,"b":"b","a":2}', '{"a":1,"b":"x","b":"y,"}',
    '{"a":"1","b":"x"}', '{"a":1,"b":2}', '{"a":1,"b":"x","c":"true"}', '{"a":1.0,"b":"x"}',
    '{"a":null,"b":"x"}', '{"a":1,"b":null}', '{"a":1}', '{"b":"x"}', '{"a":01,"b":"x"}',
    '{"a":1,"b":"x"}\n', '{"a":1,"b":"x"},', '{"a":1,"b":"x",}', '{"a":1,"b":"x"}{}',
    '{"a":1,"b":"x","d":[1]}', '{"a":1,"b":"x","ab":3}', '{"a":1,"b":"x","d":"a","e":"b,"}',
    '{"a":999999999999999999,"b":"x"}', '{"a":9223372036854775808,"b":"x"}', '{"a":1,"b":"\n"}',
    '{"a":1,"b":"x\u2028\u0085"}', '{"a":1,"b":"\\u0078"}', '{"a":1, "b":"x"}', '{"A":1,"b":"x"}',
)  # fmt: skip


def test_what_patterns_read_of_flat_events_is_what_python_reads() -> None:
    kind = make_dataclass("Flat", [("a", int), ("b", str), ("c", bool | None)], frozen=True)
    reading = EventReading((es.event("one", kind),), ("one",))
    rows = [{"type": "one", "schema": 1, "data": text} for text in (*FLAT, *ODD)]
    schema = pa.schema([("type", pa.string()), ("schema", pa.int32()), ("data", pa.string())])
    found = in_spark(shared(), reading, pa.Table.from_pylist(rows, schema))
    for row, one in zip(rows, found, strict=True):
        assert one == in_python(reading, row), row
