"""Judging the records of a partition on Kafka: their frontiers, and those that are not rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import SECOND, to_datetime
from headrace.log import Topic, TopicCommit, TopicSettings
from headrace.log.declared import TopicRow
from headrace.log.kafka.cuts import NONE
from headrace.log.kafka.judging import Judge
from headrace.log.record import Batch
from headrace.plan.lateness import Closing
from headrace.plan.log_rows import Span
from headrace.plan.position import Commits
from headrace.plan.side_output import SideOutput
from headrace.plan.uncounted import Uncounted
from headrace.schema.ddl import parse_schema

COLUMNS = "id string, at timestamp"
NOW = 1_000 * SECOND
"""The append time of all records."""


def topic(**settings: Any) -> TopicRow:
    made = TopicSettings().change({"skew": "10s", **settings})
    return TopicRow(1, 1, COLUMNS, Topic("t", 1, parse_schema(COLUMNS), "id", "at", made))


def messages(*values: int | bytes | None, first: int = 0) -> list[Message]:
    """Records: rows with an event time in seconds, other bytes, or tombstones."""
    return [
        Message(
            topic="t",
            partition=0,
            offset=first + place,
            key=b"a",
            value=_row(value) if isinstance(value, int) else value,
            timestamp=(2, NOW // 1_000),
        )
        for place, value in enumerate(values)
    ]


def _row(second: int) -> bytes:
    return f'{{"id": "a", "at": "{to_datetime(second * SECOND).isoformat()}"}}'.encode()


def met(batches: Sequence[Batch]) -> list[int | None]:
    """The frontiers that rows met, in seconds."""
    found = np.concatenate([one.judged.frontiers for one in batches if one.judged is not None])
    return [None if moment == NONE else moment // SECOND for moment in found.tolist()]


def good(batches: Sequence[Batch]) -> list[bool]:
    masks = [one.judged.good for one in batches if one.judged is not None]
    return [bool(one) for one in np.concatenate(masks)]


def test_a_row_meets_the_highest_event_time_before_it() -> None:
    judge = Judge(topic(), NONE)
    found = list(judge.batches(messages(5, 9, 7, 11)))
    assert met(found) == [None, 5, 9, 9]
    assert judge.frontier == 11 * SECOND


def test_what_has_no_valid_event_time_advances_nothing() -> None:
    judge = Judge(topic(), NONE)
    found = list(judge.batches(messages(5, b'{"id": "a"}', b"{", None, 1_011, 6)))
    assert good(found) == [True, False, False, False, False, True]
    assert met(found) == [None, 5, 5, 5, 5, 5]


def test_an_event_time_is_valid_up_to_the_skew() -> None:
    assert good(list(Judge(topic(), NONE).batches(messages(1_010, 1_011)))) == [True, False]


def test_by_arrival_a_row_meets_its_own_append_time() -> None:
    judge = Judge(topic(frontier="arrival"), NONE)
    assert met(list(judge.batches(messages(5, 9)))) == [1_000, 1_000]


def test_by_punctuation_no_row_advances_the_frontier() -> None:
    judge = Judge(topic(frontier="punctuation"), 3 * SECOND)
    assert met(list(judge.batches(messages(5, 9)))) == [3, 3]


VALUES = st.none() | st.integers(0, 1_020) | st.sampled_from([b"{", b'{"id": "a"}'])


@given(st.lists(VALUES, min_size=1, max_size=30), st.integers(0, 30))
def test_a_row_is_judged_the_same_however_records_are_fetched(
    values: list[int | bytes | None], middle: int
) -> None:
    whole = list(Judge(topic(), NONE).batches(messages(*values)))
    judge = Judge(topic(), NONE)
    parts = list(judge.batches(messages(*values[:middle])))
    parts += judge.batches(messages(*values[middle:], first=min(middle, len(values))))
    assert (met(parts), good(parts)) == (met(whole), good(whole))


# The rows that do not count

CLOSING = Closing.after(20 * SECOND)


def uncounted(*values: int | bytes | None) -> Uncounted:
    found, row = Uncounted(), topic()
    commit = TopicCommit(1, len(values), None, None, 0, 1, None, 1 << 62)
    for batch in Judge(row, NONE).batches(messages(*values)):
        numbered = Batch(**{name: getattr(batch, name) for name in Batch.__slots__} | {"commit": 1})
        found.add("step", row.topic, numbered, cast(Commits, {1: commit}), CLOSING)
    return found


def letters(found: Uncounted) -> list[tuple[int, str, str | None]]:
    rows = pa.concat_tables(found.dead).to_pylist()
    return [(row["offset"], row["reason"], row["row"]) for row in rows]


def late(found: Uncounted) -> list[int]:
    return [offset for rows in found.candidates for offset in rows["_offset"].to_pylist()]


def test_a_record_that_is_no_row_is_a_dead_letter_with_its_bytes_and_the_reason() -> None:
    found = uncounted(5, b"{garbage", b"\xff\x00", b"null", b'{"id": "a"}', 2_000, None)
    assert letters(found) == [
        (1, "does not decode", '{"value":"{garbage"}'),
        (2, "does not decode", '{"bytes":"ff00"}'),
        (3, "does not decode", '{"value":"null"}'),
        (4, "no event time", '{"id": "a"}'),
        (5, "ahead of the clock", _row(2_000).decode()),
    ]
    assert found.tombstones == 1


def test_a_tombstone_without_a_key_deletes_nothing_and_is_a_dead_letter() -> None:
    (message,) = messages(None)
    nobody = Message(
        topic="t", partition=0, offset=1, key=None, value=None, timestamp=message.timestamp()
    )
    found, row = Uncounted(), topic()
    commit = TopicCommit(1, 2, None, None, None, 2, None, 0)
    for batch in Judge(row, NONE).batches([message, nobody]):
        numbered = Batch(**{name: getattr(batch, name) for name in Batch.__slots__} | {"commit": 1})
        found.add("step", row.topic, numbered, cast(Commits, {1: commit}), None)
    assert (letters(found), found.tombstones) == ([(1, "no key", None)], 1)


def test_a_row_is_late_by_the_patience_after_what_it_met() -> None:
    assert late(uncounted(100, 81, 80, 130, 110, 111)) == [2, 4]


# Handed over in files


def test_the_driver_reads_what_the_tasks_have_written(tmp_path: Path) -> None:
    side, spans = SideOutput(tmp_path / "beside"), [Span(0, 0, 5), Span(1, 0, 3)]
    some, other = uncounted(100, 80, b"{", None, None), uncounted(100, 101, 70)
    side.write("t", spans[0], some)
    assert side.read("t", spans) is None, "a task has not written"
    side.write("t", spans[1], other)
    found = side.read("t", spans)
    assert found is not None
    assert letters(found) == letters(some)
    assert late(found) == [*late(some), *late(other)] == [1, 2]
    assert found.tombstones == 2
    side.clear()
    assert side.read("t", spans) is None


def test_files_of_other_offsets_are_not_read(tmp_path: Path) -> None:
    side = SideOutput(tmp_path)
    side.write("t", Span(0, 0, 5), uncounted(100, 80))
    assert side.read("t", [Span(0, 0, 6)]) is None
    assert side.read("t", [Span(0, 1, 5)]) is None
    assert side.read("other", [Span(0, 0, 5)]) is None
