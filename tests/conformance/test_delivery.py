"""Delivery guarantees of a group when a consumer dies: at most, at least or exactly once.

A crash is a consumer that never polls again. Its successor shows what was lost or repeated.
"""

from __future__ import annotations

import pytest

from headrace.log import LATEST, Consumer, Log
from headrace.log.roles import CommitMode
from tests.conformance.stage import Stage, send, values


@pytest.fixture
def letters(log: Log) -> Log:
    log.create_topic("letters")
    for letter in "abcdef":
        send(log, "letters", letter)
    return log


def word(consumer: Consumer, length: int) -> str:
    return b"".join(r.value for r in consumer.poll(max_records=length)).decode()


def rest(stage: Stage, mode: CommitMode = "after") -> str:
    """The records that a successor in the group gets."""
    with stage.log.consumer("letters", group="readers", commit=mode) as successor:
        return b"".join(r.value for r in stage.drain(successor)).decode()


def test_a_group_goes_on_where_it_was_closed(stage: Stage, letters: Log) -> None:
    with letters.consumer("letters", group="readers") as consumer:
        assert word(consumer, 4) == "abcd"
    assert rest(stage) == "ef"
    assert rest(stage) == ""


@pytest.mark.silence
@pytest.mark.parametrize(
    ("mode", "left"),
    [
        # The last poll was committed before it returned: c and d may be lost, not repeated.
        ("before", "ef"),
        # The last poll was not acknowledged by a next one: c and d are repeated, not lost.
        ("after", "cdef"),
        # Nothing was committed by hand, so everything is repeated.
        ("manual", "abcdef"),
    ],
)
def test_after_a_crash_while_handling_the_second_poll(
    stage: Stage, letters: Log, mode: CommitMode, left: str
) -> None:
    consumer = letters.consumer("letters", group="readers", commit=mode)
    assert word(consumer, 2) + word(consumer, 2) == "abcd"
    stage.crash(consumer)
    assert rest(stage, mode) == left


@pytest.mark.silence
@pytest.mark.parametrize("mode", ["before", "after", "manual"])
def test_after_a_crash_before_the_first_poll_everything_comes(
    stage: Stage, letters: Log, mode: CommitMode
) -> None:
    stage.crash(letters.consumer("letters", group="readers", commit=mode))
    assert rest(stage, mode) == "abcdef"


@pytest.mark.silence
def test_after_a_crash_the_manual_commit_decides(stage: Stage, letters: Log) -> None:
    consumer = letters.consumer("letters", group="readers", commit="manual")
    word(consumer, 2)
    consumer.commit()
    word(consumer, 2)
    stage.crash(consumer)
    assert rest(stage, "manual") == "cdef"


def test_a_manual_consumer_commits_nothing_by_closing(stage: Stage, letters: Log) -> None:
    with letters.consumer("letters", group="readers", commit="manual") as consumer:
        word(consumer, 2)
        consumer.commit()
        word(consumer, 2)
    assert rest(stage, "manual") == "cdef"


def test_a_block_that_ends_in_an_error_does_not_count_as_handled(
    stage: Stage, letters: Log
) -> None:
    with pytest.raises(RuntimeError), letters.consumer("letters", group="readers") as consumer:
        word(consumer, 2)
        word(consumer, 2)
        raise RuntimeError("c could not be handled")
    assert rest(stage) == "cdef"


def test_seeking_moves_what_will_be_committed(stage: Stage, letters: Log) -> None:
    with letters.consumer("letters", group="readers") as consumer:
        word(consumer, 5)
        consumer.seek(LATEST)
    assert rest(stage) == ""
    send(letters, "letters", b"g")
    assert rest(stage) == "g"


def test_rewinding_goes_back_to_what_was_committed(stage: Stage, letters: Log) -> None:
    consumer = letters.consumer("letters", group="readers", commit="manual")
    word(consumer, 2)
    consumer.commit()
    assert word(consumer, 3) == "cde"
    consumer.rewind()
    assert word(consumer, 3) == "cde"


def test_rewinding_without_a_commit_goes_back_to_where_reading_began(letters: Log) -> None:
    consumer = letters.consumer("letters", group="readers", commit="manual", start=LATEST)
    send(letters, "letters", b"x", b"y")
    assert word(consumer, 9) == "xy"
    consumer.rewind()
    assert word(consumer, 9) == "xy", "what came after the start must not be skipped"


def test_committing_twice_is_committing_once(stage: Stage, letters: Log) -> None:
    consumer = letters.consumer("letters", group="readers", commit="manual")
    word(consumer, 2)
    consumer.commit()
    consumer.commit()
    consumer.close()
    assert rest(stage, "manual") == "cdef"


@pytest.mark.silence
@pytest.mark.parametrize("crash", ["while handling", "before the commit", "after the commit"])
def test_results_and_offsets_in_one_transaction_are_exactly_once(
    stage: Stage, letters: Log, crash: str
) -> None:
    letters.create_topic("copies")

    def copy(consumer: Consumer, crash: str | None) -> None:
        with letters.producer(id="copier") as producer:
            while records := consumer.poll(max_records=2):
                transaction = producer.transaction()
                for record in records:
                    transaction.send("copies", record.value.upper())
                    if crash == "while handling":
                        return
                transaction.commit_offsets(consumer)
                if crash == "before the commit":
                    return
                transaction.commit()
                if crash == "after the commit":
                    return

    for attempt in (crash, crash, None):
        consumer = letters.consumer("letters", group="readers", commit="manual")
        copy(consumer, attempt)
        stage.crash(consumer)
    assert values(letters, "copies") == [b"A", b"B", b"C", b"D", b"E", b"F"]
