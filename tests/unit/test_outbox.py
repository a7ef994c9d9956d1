"""Everything that a batch puts into the outbox reaches its topic, however large its rows are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RecordTooLarge
from headrace.log import Log, Producer
from headrace.log.dead_letter import DEAD_LETTER
from headrace.log.file.log import FileLog
from headrace.log.settings import MAX_RECORD_BYTES
from headrace.log.split import ranges_of
from headrace.plan import metadata
from headrace.plan.crash_points import nothing
from headrace.store import changelog
from headrace.store.outbox import Outbox, put
from headrace.store.sqlite.database import Database

MIB = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with FileLog(tmp_path / "log") as log:
        yield log


@pytest.fixture
def producer(log: Log) -> Iterator[Producer]:
    with log.producer(id="app") as producer:
        yield producer


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "views.db", "app")
    yield database
    database.close()


@pytest.fixture
def outbox(database: Database, log: Log, producer: Producer) -> Outbox:
    return Outbox(database, log, producer, nothing)


def few_large_among_many_small() -> pa.Table:
    """60 rows of 0.9 MB, and then 100,000 small ones: most of the bytes are in the first rows."""
    texts = ["x" * 900_000] * 60 + ["y"] * 100_000
    return pa.table({"n": pa.array(range(len(texts)), pa.int64()), "text": texts})


def numbers(log: Log, topic: str) -> list[int]:
    return [n for batch in log.read(topic) for n in batch.data.column("n").to_pylist()]


def test_a_few_large_rows_beside_many_small_ones_are_sent(
    log: Log, database: Database, outbox: Outbox
) -> None:
    log.create_topic("out", schema="n bigint, text string")
    rows = few_large_among_many_small()
    with database.writing() as db:
        assert put(db, "out", rows) == rows.num_rows
        sizes = [size for (size,) in db.execute("SELECT length(data) FROM _headrace_outbox")]
    assert max(sizes) < 9 * MIB
    outbox.send()
    assert numbers(log, "out") == list(range(rows.num_rows))


def test_entries_that_an_earlier_headrace_has_cut_too_large_are_cut_again(
    log: Log, database: Database, outbox: Outbox
) -> None:
    log.create_topic("out", schema="n bigint, text string")
    rows = few_large_among_many_small()
    with database.writing() as db:
        put(db, "out", rows.slice(0, 1))
        for part in (rows.slice(1, 50_000), rows.slice(50_001)):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_table(part)
            db.execute(
                "INSERT INTO _headrace_outbox SELECT sequence, 'out', ? FROM _headrace_outbox_end",
                (memoryview(sink.getvalue()),),
            )
            db.execute("UPDATE _headrace_outbox_end SET sequence = sequence + 1")
    outbox.send()
    with database.writing() as db:
        outbox.forget_sent(db)
        put(db, "out", rows.slice(0, 1))
    outbox.send()
    assert numbers(log, "out") == [*range(rows.num_rows), 0]


def test_what_was_sent_is_not_sent_again_though_its_topic_is_gone(
    log: Log, database: Database, outbox: Outbox
) -> None:
    for topic in ("out", "gone"):
        log.create_topic(topic, schema="n bigint")
    with database.writing() as db:
        for topic in ("out", "gone"):
            put(db, topic, pa.table({"n": pa.array([1], pa.int64())}))
    outbox.send()
    log.delete_topic("gone")
    with log.producer(id="app") as successor:
        Outbox(database, log, successor, nothing).send()
    assert numbers(log, "out") == [1]


def test_a_topic_is_made_to_take_a_row_that_is_stored_already(
    log: Log, database: Database, outbox: Outbox
) -> None:
    log.create_topic("out", schema="n bigint, text string")
    large = pa.table({"n": pa.array([0, 1], pa.int64()), "text": ["x" * 2 * MIB, "y"]})
    with database.writing() as db:
        put(db, "out", large)
    outbox.send()
    assert numbers(log, "out") == [0, 1]
    assert log.topic("out").topic.settings.max_record_bytes == MAX_RECORD_BYTES


def test_a_row_that_no_topic_takes_is_refused_before_it_is_stored(database: Database) -> None:
    rows = pa.table({"n": pa.array([0, 1], pa.int64()), "text": ["", "x" * (33 * MIB)]})
    with (
        pytest.raises(RecordTooLarge, match=r"'out' has 34,\d+,\d+ bytes"),
        database.writing() as db,
    ):
        put(db, "out", rows)
    with database.reading() as db:
        assert db.execute("SELECT count(*) FROM _headrace_outbox").get == 0


def test_a_dead_letter_of_a_row_that_is_too_large_has_its_place(
    log: Log, database: Database, outbox: Outbox
) -> None:
    log.create_topic("dead", schema=DEAD_LETTER)
    letter = {"step": "s", "topic": "t", "partition": 0, "offset": 7, "reason": "no time"}
    letters = pa.Table.from_pylist(
        [{**letter, "row": "x" * (33 * MIB)}, {**letter, "offset": 8, "row": "{}"}], DEAD_LETTER
    )
    with database.writing() as db:
        assert put(db, "dead", letters) == 2
    outbox.send()
    found = [row for batch in log.read("dead") for row in batch.data.to_pylist()]
    assert [(row["offset"], row["row"][:19]) for row in found] == [
        (7, '{"bytes_left_out": '),
        (8, "{}"),
    ]


def pane(text: str, revision: int) -> pa.Table:
    return pa.table(
        {
            "k": ["a"],
            "text": [text],
            metadata.REVISION: pa.array([revision], pa.int64()),
            metadata.ROWS: pa.array([1], pa.int64()),
        }
    )


@pytest.mark.parametrize(("size", "has_before"), [(1 * MIB, True), (17 * MIB, False)])
def test_a_change_is_told_without_what_was_before_if_a_record_cannot_hold_both(
    log: Log, database: Database, outbox: Outbox, size: int, has_before: bool
) -> None:
    old, new = pane("a" * size, 1), pane("b" * size, 2)
    log.create_topic("changes", schema=changelog.envelope_schema(new.schema), key="key")
    made = changelog.changes("app", "view", ["k"], new, old, 0)
    with database.writing() as db:
        put(db, "changes", made)
    outbox.send()
    ((change,),) = [batch.data.to_pylist() for batch in log.read("changes")]
    assert (change["op"], change["after"]["text"][:1], len(change["after"]["text"])) == (
        "u",
        "b",
        size,
    )
    assert (change["before"] is not None) == has_before


@given(
    st.lists(st.integers(0, 200), max_size=40),
    st.integers(1, 300),
    st.integers(1, 5),
)
def test_ranges_hold_every_row_once_and_no_more_than_they_may(
    sizes: list[int], most: int, chunk: int
) -> None:
    texts = pa.chunked_array(
        [["x" * size for size in sizes[i : i + chunk]] for i in range(0, len(sizes), chunk)],
        pa.string(),
    )
    rows = pa.table({"text": texts})
    ranges = list(ranges_of(rows, most))
    assert [n for first, end in ranges for n in range(first, end)] == list(range(len(sizes)))
    for first, end in ranges:
        assert end - first == 1 or rows.slice(first, end - first).nbytes <= most
