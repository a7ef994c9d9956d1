"""Indexed topics: rows are found by their values, and commits are made unless some have come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headrace.errors import (
    ConditionFailed,
    InvalidSchema,
    InvalidSetting,
    MisusedHandle,
    UnknownTopic,
)
from headrace.log import Capability, Log, Match, Receipt
from tests.conformance.stage import Stage, needs

CONDITIONS = (Capability.CONDITIONS, Capability.TYPED_TOPICS)
SCHEMA = "id STRING NOT NULL, number INT NOT NULL, tags ARRAY<STRING>"


def declare(log: Log, partitions: int = 1, **settings: str) -> Log:
    log.create_topic(
        "facts", partitions=partitions, schema=SCHEMA, key="id",
        settings={"index": "tags", **settings},
    )  # fmt: skip
    return log


def write(log: Log, number: int, *tags: str, id: str = "a", unless: Any = None) -> int | None:
    """Commit a row, on a condition, and return the number of its commit."""
    with log.producer() as producer:
        transaction = producer.transaction()
        if unless is not None:
            transaction.attach(unless)
        transaction.send("facts", {"id": id, "number": number, "tags": list(tags)})
        receipt = transaction.commit()
    assert isinstance(receipt, Receipt)
    return receipt.commit


def numbers(log: Log, *matches: Match, **bounds: Any) -> list[int]:
    """The numbers of the rows that match."""
    return [
        number
        for batch in log.find("facts", matches, **bounds)
        for number in batch.data.column("number").to_pylist()
    ]


def test_a_commit_is_made_if_no_row_has_come_that_matches(log: Log) -> None:
    with needs(log, *CONDITIONS):
        declare(log)
        seen = write(log, 1, "x") or 0
        write(log, 2, "y")
        write(log, 3, "x", unless=log.unless("facts", [[["x"]]], after=seen))
        assert numbers(log, [["x"]]) == [1, 3]


def test_a_commit_is_refused_if_a_row_has_come_that_matches(log: Log) -> None:
    with needs(log, *CONDITIONS):
        declare(log)
        condition = log.unless("facts", [[["x"]]], after=log.head())
        winner = write(log, 1, "x")
        write(log, 2, "x")
        with pytest.raises(ConditionFailed) as caught:
            write(log, 3, "y", unless=condition)
        assert caught.value.details["commit"] == winner
        assert numbers(log, [["x", "y"]]) == [1, 2]


def test_of_two_commits_on_the_same_condition_one_is_made(stage: Stage) -> None:
    log = stage.log
    with needs(log, *CONDITIONS):
        declare(log)
        other = stage.elsewhere()
        mine, theirs = (one.unless("facts", [[["seat"]]], after=0) for one in (log, other))
        write(other, 1, "seat", unless=theirs)
        with pytest.raises(ConditionFailed):
            write(log, 2, "seat", unless=mine)
        assert numbers(log, [["seat"]]) == [1]


def test_a_condition_alone_is_checked_and_commits_nothing(log: Log) -> None:
    with needs(log, *CONDITIONS):
        declare(log)
        write(log, 1, "x")
        head = log.head()
        with log.producer() as producer:
            transaction = producer.transaction()
            transaction.attach(log.unless("facts", [[["x"]]], after=head))
            transaction.commit()
            transaction = producer.transaction()
            transaction.attach(log.unless("facts", [[["x"]]], after=0))
            with pytest.raises(ConditionFailed):
                transaction.commit()
        assert log.head() == head


def test_a_row_matches_with_a_value_of_every_group_of_a_match(log: Log) -> None:
    with needs(log, *CONDITIONS):
        declare(log, partitions=3)
        for number, tags in enumerate(["ac", "ad", "bc", "bd", "a", ""]):
            write(log, number, *tags, id=str(number))
        assert numbers(log, [["a"]]) == [0, 1, 4]
        assert numbers(log, [["a", "b"]]) == [0, 1, 2, 3, 4]
        assert numbers(log, [["a"], ["c", "d"]]) == [0, 1]
        assert numbers(log, [["a"], ["c"]], [["b"], ["d"]]) == [0, 3]
        assert numbers(log, [["a"]], [["c"]]) == [0, 1, 2, 4]
        assert numbers(log, [["e"]]) == []


def test_rows_are_found_between_two_commits(log: Log) -> None:
    with needs(log, *CONDITIONS):
        declare(log)
        commits = [write(log, number, "x") or 0 for number in range(5)]
        assert numbers(log, [["x"]], after=commits[1]) == [2, 3, 4]
        assert numbers(log, [["x"]], upto=commits[1]) == [0, 1]
        assert numbers(log, [["x"]], after=commits[1], upto=commits[3]) == [2, 3]
        assert numbers(log, [["x"]], upto=commits[3], last=1) == [3]
        assert numbers(log, [["x"]], after=commits[4], last=1) == []
        every = numbers(log, [["x"]])
        assert [numbers(log, [["x"]], last=many) for many in (2, 100)] == [every[-2:], every]


def test_rows_of_one_commit_are_found_without_the_others(log: Log) -> None:
    with needs(log, *CONDITIONS):
        declare(log)
        with log.producer() as producer, producer.transaction() as transaction:
            for number in range(6):
                tags = ["even", "even"] if number % 2 == 0 else None
                transaction.send("facts", {"id": "a", "number": number, "tags": tags})
        assert numbers(log, [["even"]]) == [0, 2, 4]
        found = list(log.find("facts", [[["even"]]], columns=["number"]))
        assert [batch.offsets.tolist() for batch in found] == [[0, 2, 4]]
        assert found[0].data.schema.names == ["number"]


def test_a_column_of_strings_is_an_index(log: Log) -> None:
    with needs(log, *CONDITIONS):
        log.create_topic("facts", schema="id STRING, number INT", settings={"index": "id"})
        with log.producer() as producer:
            for number, id in enumerate(["a", "b", None, "a"]):
                producer.send("facts", {"id": id, "number": number})
        assert numbers(log, [["a"]]) == [0, 3]


def test_what_is_found_survives_a_restart(stage: Stage) -> None:
    with needs(stage.log, *CONDITIONS):
        declare(stage.log)
        write(stage.log, 1, "x")
        assert numbers(stage.reopen(), [["x"]]) == [1]


def test_a_row_that_compaction_removed_is_not_found(stage: Stage) -> None:
    log = stage.log
    with needs(log, *CONDITIONS, Capability.UPKEEP):
        declare(log, cleanup="compact")
        for number, id in enumerate("abac"):
            write(log, number, "x", f"n{number}", id=id)
        log.compact("facts")
        assert numbers(log, [["x"]]) == [1, 2, 3]
        write(log, 4, "y", unless=log.unless("facts", [[["n0"]]], after=0))


def test_a_row_that_retention_deleted_is_not_found(stage: Stage) -> None:
    log = stage.log
    with needs(log, *CONDITIONS, Capability.UPKEEP):
        declare(log, retention="1h")
        write(log, 1, "x")
        stage.later(timedelta(hours=2))
        log.upkeep("facts")
        write(log, 2, "x", unless=log.unless("facts", [[["x"]]], after=0))
        assert numbers(log, [["x"]]) == [2]


def test_a_topic_that_was_created_again_has_no_marks_of_the_old_one(log: Log) -> None:
    with needs(log, *CONDITIONS):
        declare(log)
        write(log, 1, "x")
        condition = log.unless("facts", [[["x"]]], after=0)
        log.delete_topic("facts")
        with pytest.raises(UnknownTopic):
            list(log.find("facts", [[["x"]]]))
        declare(log)
        assert numbers(log, [["x"]]) == []
        with pytest.raises(UnknownTopic):
            write(log, 2, "y", unless=condition)


def test_rows_are_found_while_compaction_moves_them(stage: Stage) -> None:
    log = stage.log
    with needs(log, *CONDITIONS, Capability.UPKEEP):
        declare(log, cleanup="compact")
        for number, id in enumerate("abac"):
            write(log, number, "x", id=id)
        found = log.find("facts", [[["x"]]])
        first = next(found)
        stage.elsewhere().compact("facts")
        rest = [n for batch in found for n in batch.data.column("number").to_pylist()]
        assert first.data.column("number").to_pylist() == [0]
        assert rest == [1, 2, 3]


@pytest.mark.parametrize("index", ["number", "nothing"])
def test_an_index_is_a_column_of_strings_or_lists_of_them(log: Log, index: str) -> None:
    with needs(log, *CONDITIONS), pytest.raises(InvalidSchema, match=index):
        log.create_topic("facts", schema=SCHEMA, settings={"index": index})


def test_a_topic_of_bytes_has_no_index(log: Log) -> None:
    with needs(log, *CONDITIONS), pytest.raises(InvalidSchema):
        log.create_topic("facts", settings={"index": "key"})


@pytest.mark.parametrize("index", ["id", "none"])
def test_an_index_is_for_good(log: Log, index: str) -> None:
    with needs(log, *CONDITIONS):
        declare(log)
        with pytest.raises(InvalidSetting, match="index"):
            log.alter_topic("facts", settings={"index": index})
        log.alter_topic("facts", settings={"index": "tags", "retention": "1d"})


def test_a_topic_without_an_index_is_not_matched(log: Log) -> None:
    log.create_topic("plain")
    with needs(log, Capability.CONDITIONS):
        with pytest.raises(InvalidSetting, match="no index"):
            log.unless("plain", [[["x"]]], after=0)
        with pytest.raises(InvalidSetting, match="no index"):
            log.find("plain", [[["x"]]])


@pytest.mark.parametrize("matches", [[], [[]], [[[]]], ["x"], [["x"]], [[[1]]]])
def test_a_match_has_groups_of_texts(log: Log, matches: Any) -> None:
    with needs(log, *CONDITIONS):
        declare(log)
        with pytest.raises(InvalidSetting):
            log.unless("facts", matches, after=0)


def test_a_condition_of_another_kind_of_log_is_refused(log: Log) -> None:
    log.create_topic("plain")
    with log.producer() as producer, needs(log, Capability.CONDITIONS):
        transaction = producer.transaction()
        with pytest.raises(MisusedHandle):
            transaction.attach(_Foreign())  # type: ignore[arg-type]


class _Foreign:
    """No part of a commit."""
