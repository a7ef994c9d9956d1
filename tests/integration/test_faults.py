"""Bad input: a specific error refuses each kind, and committed records stay intact.

Faults below the log have their own files: the disk, the folder, damaged data, and other processes
that share the log.
"""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace import errors
from headrace.errors import (
    HeadraceError,
    InvalidName,
    InvalidRecord,
    NullKey,
    OffsetOutOfRange,
    RecordTooLarge,
    UnknownColumn,
    UnknownTopic,
    WrongType,
)
from headrace.log import Offset
from headrace.log.file.log import FileLog

COLUMNS = (
    "id string, small tinyint, whole int, long bigint, half float, real double, flag boolean, "
    "at timestamp, local timestamp_ntz, day date, money decimal(5,2), raw binary, "
    "tags array<int>, props map<string,int>, place struct<lat: double>"
)
GOOD = {"id": "good"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FileLog]:
    """A typed topic and a raw one, each with one good record."""
    with FileLog(tmp_path / "log") as log:
        log.create_topic("typed", schema=COLUMNS, key="id", settings={"max_record_bytes": 1000})
        log.create_topic("raw", settings={"max_record_bytes": 1000})
        with log.producer() as producer:
            producer.send("typed", GOOD)
            producer.send("raw", b"good")
        yield log
        # The content is the same, whatever a test tried.
        assert [r.value["id"] for b in log.read("typed") for r in b.records()] == ["good", "good"]
        assert [r.value for b in log.read("raw") for r in b.records()] == [b"good", b"good"]


def refused(log: FileLog, kind: type[HeadraceError], topic: str, value: Any, **more: Any) -> Any:
    """Check that all three ways to send a record refuse it, with good ones before and after."""
    with log.producer(linger=timedelta(hours=1)) as producer:
        with pytest.raises(kind) as caught:
            producer.send(topic, value, **more)
        with pytest.raises(kind), producer.transaction() as transaction:
            transaction.send("raw", b"lost with the transaction")
            transaction.send(topic, value, **more)
        producer.send("typed", GOOD)
        producer.send("raw", b"good")
    assert type(caught.value) is kind
    return caught.value


def refused_table(log: FileLog, kind: type[HeadraceError], topic: str, table: pa.Table) -> Any:
    """Check that appending a whole batch is refused."""
    with log.producer(linger=timedelta(hours=1)) as producer:
        with pytest.raises(kind) as caught:
            producer.append(topic, table)
        with pytest.raises(kind), producer.transaction() as transaction:
            transaction.send("raw", b"lost with the transaction")
            transaction.append(topic, table)
        producer.send("typed", GOOD)
        producer.send("raw", b"good")
    assert type(caught.value) is kind
    return caught.value


def test_an_unknown_topic_is_named(log: FileLog) -> None:
    error = refused(log, UnknownTopic, "tpyed", GOOD)
    assert "tpyed" in str(error)
    assert error.details["topic"] == "tpyed"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../etc", "a\\b", "a\0b", "x" * 250])
def test_a_bad_name_is_refused_wherever_names_are_given(log: FileLog, name: str) -> None:
    for use in (
        lambda: log.create_topic(name),
        lambda: log.topic(name),
        lambda: log.read(name),
        lambda: log.consumer("raw", group=name),
        lambda: log.group(name),
        lambda: log.producer(id=name),
    ):
        with pytest.raises(InvalidName) as caught:
            use()
        assert caught.value.details["name"] == name
    with log.producer() as producer:
        with pytest.raises(InvalidName):
            producer.send(name, b"x")
        producer.send("typed", GOOD)
        producer.send("raw", b"good")


def test_a_wrong_column_is_named_with_the_nearest_right_one(log: FileLog) -> None:
    error = refused(log, UnknownColumn, "typed", {"id": "a", "whoel": 1})
    assert "'whoel'" in str(error)
    assert "'whole'" in error.hint
    assert (error.details["topic"], error.details["column"]) == ("typed", "whoel")


def test_a_wrong_column_in_arrow_is_named_with_the_nearest_right_one(log: FileLog) -> None:
    table = pa.table({"id": ["a"], "whoel": [1]})
    error = refused_table(log, UnknownColumn, "typed", table)
    assert "'whole'" in error.hint
    assert error.details["column"] == "whoel"


def test_a_column_given_twice_is_refused(log: FileLog) -> None:
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["id", "id"])
    assert "more than once" in str(refused_table(log, InvalidRecord, "typed", table))


WRONG: list[tuple[str, Any]] = [
    ("id", 5), ("id", b"bytes"), ("id", "\ud800"),
    ("small", 128), ("small", -129), ("small", True), ("small", "1"), ("small", 1.5),
    ("whole", 2**31), ("long", 2**63), ("long", float("nan")), ("long", float("inf")),
    ("half", 1e39), ("half", "x"), ("half", -(10**400)), ("real", 10**400), ("real", True),
    ("flag", 1), ("flag", "true"),
    ("at", "yesterday"), ("at", 5), ("at", "9999-12-31T23:59:59-01:00"),
    ("local", datetime(2026, 1, 1, tzinfo=UTC)), ("day", datetime(2026, 1, 1)), ("day", "1.1.26"),
    ("money", "1.234"), ("money", Decimal("1000")), ("money", "NaN"), ("money", "1e999"),
    ("money", float("inf")), ("raw", "not base64!"), ("raw", 5),
    ("tags", "abc"), ("tags", [1, "x"]), ("tags", [2**31]), ("props", [1]), ("props", {1: 1}),
    ("props", {"a": "x"}), ("place", {"lon": 1.0}), ("place", {"lat": "x"}), ("place", 5),
]  # fmt: skip


@pytest.mark.parametrize(("column", "value"), WRONG, ids=lambda part: repr(part)[:24])
def test_a_value_of_a_wrong_type_is_refused_by_name_of_column(
    log: FileLog, column: str, value: Any
) -> None:
    error = refused(log, WrongType, "typed", {"id": "a", column: value})
    assert f"'{column}'" in str(error)
    assert (error.details["topic"], error.details["column"]) == ("typed", column)


@pytest.mark.parametrize("value", ["text", b"bytes", 5, [1], [("id", "a")]])
def test_a_row_has_its_columns_by_name(log: FileLog, value: Any) -> None:
    assert "must be a dict of its columns" in str(refused(log, InvalidRecord, "typed", value))


WRONG_ARROW: list[tuple[str, pa.Array]] = [
    ("whole", pa.array([2**31])), ("whole", pa.array([1.5])), ("whole", pa.array(["x"])),
    ("small", pa.array([300], pa.uint16())), ("flag", pa.array([5])), ("half", pa.array([1e300])),
    ("id", pa.array([b"\xff"])), ("at", pa.array([1], pa.timestamp("ns"))),
    ("day", pa.array([datetime(2026, 1, 1, 12)])), ("money", pa.array([1.239])),
    ("money", pa.array([Decimal("1000.00")])), ("tags", pa.array([["x"]])),
    ("place", pa.array([1])), ("long", pa.array([2**63], pa.uint64())),
]  # fmt: skip


@pytest.mark.parametrize(("column", "array"), WRONG_ARROW, ids=lambda part: repr(part)[:8])
def test_a_column_whose_values_would_change_is_refused(
    log: FileLog, column: str, array: pa.Array
) -> None:
    columns = {"id": pa.array(["a"]), column: array}
    error = refused_table(log, WrongType, "typed", pa.table(columns))
    assert (error.details["topic"], error.details["column"]) == ("typed", column)


@pytest.mark.parametrize("value", [object(), {1, 2}, "\ud800", {"a": object()}])
def test_a_raw_value_that_is_nothing_like_bytes_is_refused(log: FileLog, value: Any) -> None:
    refused(log, InvalidRecord, "raw", value)


@pytest.mark.parametrize("row", [{}, {"id": None}, {"whole": 1}])
def test_a_row_without_its_key_is_refused(log: FileLog, row: dict[str, Any]) -> None:
    error = refused(log, NullKey, "typed", row)
    assert "'id'" in str(error)


def test_a_null_among_the_keys_of_a_batch_is_refused(log: FileLog) -> None:
    refused_table(log, NullKey, "typed", pa.table({"id": ["a", None]}))


def test_a_tombstone_needs_a_key_that_its_topic_has(log: FileLog) -> None:
    refused(log, NullKey, "typed", None)


def test_a_tombstone_for_a_topic_without_a_key_is_refused(tmp_path: Path) -> None:
    with FileLog(tmp_path / "other") as log:
        log.create_topic("keyless", schema="n int not null, m int")
        with log.producer() as producer:
            with pytest.raises(InvalidRecord, match="no key"):
                producer.send("keyless", None, key="a")
            with pytest.raises(UnknownColumn, match="'n'"):
                producer.send("keyless", {"n": None})
            with pytest.raises(UnknownColumn, match="'n'"):
                producer.append("keyless", pa.table({"m": [1]}))
            with pytest.raises(WrongType, match="null"):
                producer.append("keyless", pa.table({"n": pa.array([1, None])}))
        assert list(log.read("keyless")) == []


BIG = "x" * 1001


@pytest.mark.parametrize(
    ("topic", "value", "more"),
    [
        ("raw", BIG, {}),
        ("raw", b"", {"key": BIG}),
        ("raw", b"", {"headers": [("h", BIG.encode())]}),
        ("raw", b"x" * 500, {"key": b"k" * 501}),
        ("typed", {"id": BIG}, {}),
        ("typed", {"id": "a", "raw": BIG.encode()}, {}),
        ("typed", {"id": "a", "tags": list(range(1000))}, {}),
        ("typed", {"id": "a", "props": {str(n): n for n in range(1000)}}, {}),
    ],
    ids=str,
)
def test_a_record_over_the_limit_is_refused_with_its_size(
    log: FileLog, topic: str, value: Any, more: dict[str, Any]
) -> None:
    error = refused(log, RecordTooLarge, topic, value, **more)
    assert error.details["size"] > 1000
    assert "1,000" in str(error)
    assert "max_record_bytes" in error.hint


def test_a_row_over_the_limit_is_found_in_a_batch(log: FileLog) -> None:
    error = refused_table(log, RecordTooLarge, "raw", pa.table({"value": ["ok", BIG, "ok"]}))
    assert error.details["size"] >= 1001


def test_a_row_over_the_limit_is_found_inside_a_struct(tmp_path: Path) -> None:
    with FileLog(tmp_path / "other") as log:
        schema = "place struct<name: string, at: struct<street: string>>"
        log.create_topic("nested", schema=schema, settings={"max_record_bytes": 1000})
        small = {"place": {"name": "x" * 300, "at": {"street": "y" * 300}}}
        large = {"place": {"name": "x" * 500, "at": {"street": "y" * 600}}}
        kind = log.topic("nested").topic.schema
        with log.producer() as producer:
            producer.append("nested", pa.Table.from_pylist([small] * 500, schema=kind))
            with pytest.raises(RecordTooLarge) as caught:
                producer.append("nested", pa.Table.from_pylist([small, large], schema=kind))
        assert log.topic("nested").records == 500
        assert 1100 <= caught.value.details["size"] <= 1200


def test_a_record_at_the_limit_is_taken(tmp_path: Path) -> None:
    with FileLog(tmp_path / "other") as log:
        log.create_topic("raw", settings={"max_record_bytes": 1000})
        with log.producer() as producer:
            producer.send("raw", b"x" * 900, key=b"k" * 100)
            producer.append("raw", pa.table({"value": [b"x" * 1000]}))
        assert log.topic("raw").records == 2


def test_a_raised_limit_holds_for_a_producer_at_work(tmp_path: Path) -> None:
    with FileLog(tmp_path / "other") as log:
        log.create_topic("raw", settings={"max_record_bytes": 1000})
        with log.producer() as producer:
            producer.send("raw", b"small")
            producer.flush()
            with pytest.raises(RecordTooLarge):
                producer.send("raw", b"x" * 2000)
            log.alter_topic("raw", settings={"max_record_bytes": "1MiB"})
            producer.send("raw", b"x" * 2000)
            producer.append("raw", pa.table({"value": [b"x" * 3000]}))
        assert log.topic("raw").records == 3


def test_an_offset_out_of_range_names_the_range_even_after_pickling(tmp_path: Path) -> None:
    with FileLog(tmp_path / "other") as log:
        log.create_topic("raw")
        with log.producer() as producer:
            producer.send("raw", b"x")
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read("raw", start=Offset(7))
    error = pickle.loads(pickle.dumps(caught.value))
    assert "from 0 up to 1" in str(error)
    assert (error.details["first"], error.details["end"], error.details["offset"]) == (0, 1, 7)


ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, HeadraceError)
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_with_all_it_knows(kind: type[HeadraceError]) -> None:
    error = kind("It broke", hint="Mend it", topic="clicks", offset=7, at=[1, 2])
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is kind
        assert str(again) == str(error) == "It broke. Mend it"
        assert (again.message, again.hint, again.details) == (
            "It broke", "Mend it", {"topic": "clicks", "offset": 7, "at": [1, 2]},
        )  # fmt: skip


def test_every_error_is_in_the_tree_at_the_top_of_the_file() -> None:
    drawn = re.findall(r"^[ │├└─]*(\w+)", errors.__doc__ or "", re.MULTILINE)
    missing = {kind.__name__ for kind in ERRORS} - {"Retryable"} - set(drawn)
    assert not missing
