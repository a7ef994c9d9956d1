"""Commits of every log that has them, whether appends make them or cuts."""

from __future__ import annotations

import itertools
from datetime import timedelta

import numpy as np
import pytest

from headrace.clock import to_micros
from headrace.errors import InvalidPosition
from headrace.log import EARLIEST, Capability, Commit, Log
from tests.conformance.backends import START
from tests.conformance.stage import Stage, needs, read, send

COMMITS = Capability.COMMITS
TIMES = (Capability.COMMITS, Capability.FRONTIERS, Capability.TYPED_TOPICS)
SCHEMA = "n bigint, at timestamp"


def cut(log: Log, *topics: str) -> int:
    log.require(Capability.COMMITS)
    return log.cut(topics)


def test_a_cut_makes_commits_of_all_records(log: Log) -> None:
    log.create_topic("a", partitions=2)
    with needs(log, COMMITS):
        assert cut(log, "a") == log.head()
        for number in range(6):
            send(log, "a", b"%d" % number, partition=number % 2)
        head = cut(log, "a")
        assert log.head() == head > 0
        found = read(log, "a", start=Commit(0), stop=Commit(head))
        assert sorted(r.value for r in found) == [b"%d" % n for n in range(6)]
        assert all(record.commit is not None for record in found)
        assert sum(commit.rows for commit in log.commits("a", 0, 100)) == 6
        assert cut(log, "a") == head, "nothing is new"


def test_commits_follow_each_other_without_gap_and_overlap(log: Log) -> None:
    log.create_topic("a", partitions=3)
    with needs(log, COMMITS):
        heads = [cut(log, "a")]
        for turn in range(5):
            for number in range(4):
                send(log, "a", b"%d" % (10 * turn + number), partition=number % 3)
            heads.append(cut(log, "a"))
        seen: list[int] = []
        for before, after in itertools.pairwise(heads):
            part = read(log, "a", start=Commit(before), stop=Commit(after))
            seen += [int(record.value) for record in part]
            assert {before < (record.commit or 0) <= after for record in part} == {True}
        assert sorted(seen) == sorted(
            10 * turn + number for turn in range(5) for number in range(4)
        )
        ends = [log.offsets_at("a", Commit(head)) for head in heads]
        assert ends == sorted(ends)
        assert sum(ends[-1]) == 20


def test_an_earlier_commit_reads_the_same_later(stage: Stage) -> None:
    log = stage.log
    log.create_topic("a", partitions=2)
    with needs(log, COMMITS):
        send(log, "a", b"1", partition=0)
        first = cut(log, "a")
        before = [(r.partition, r.offset, r.commit) for r in read(log, "a", stop=Commit(first))]
        send(log, "a", b"2", partition=1)
        cut(log, "a")
        for again in (stage.elsewhere(), stage.reopen()):
            found = read(again, "a", stop=Commit(first))
            assert [(r.partition, r.offset, r.commit) for r in found] == before


def test_cuts_of_one_topic_leave_the_others_as_they_are(log: Log) -> None:
    log.create_topic("a")
    log.create_topic("b")
    with needs(log, COMMITS):
        send(log, "b", b"1")
        done = cut(log, "b")
        send(log, "a", b"1")
        cut(log, "a")
        assert [c.number <= done for c in log.commits("b", 0, 10)] == [True]
        assert all(c.number > done for c in log.commits("a", 0, 10))


def test_all_who_cut_at_once_have_the_same_commits(stage: Stage) -> None:
    one, other = stage.log, stage.elsewhere()
    one.create_topic("a", partitions=2)
    with needs(one, COMMITS):
        for turn in range(6):
            send(one, "a", b"%d" % turn, partition=turn % 2)
            for log in (one, other) if turn % 2 else (other, one):
                cut(log, "a")
        head = cut(other, "a")
        assert cut(one, "a") == head
        assert one.commits("a", 0, 100) == other.commits("a", 0, 100)
        assert sum(commit.rows for commit in one.commits("a", 0, 100)) == 6


def test_a_commit_has_a_time_and_there_is_none_that_was_not_made(stage: Stage) -> None:
    log = stage.log
    log.create_topic("a")
    with needs(log, COMMITS):
        times = []
        for _ in range(3):
            send(log, "a", b"x")
            times.append(log.commit_time(cut(log, "a")))
            stage.later(timedelta(seconds=1))
        assert times == sorted(times)
        assert times[2] > times[0]
        with pytest.raises(InvalidPosition):
            log.commit_time(log.head() + 1)


def row(n: int, minute: float) -> dict[str, object]:
    return {"n": n, "at": START + timedelta(minutes=minute)}


def test_the_frontier_is_the_lowest_of_all_partitions(log: Log) -> None:
    with needs(log, *TIMES):
        log.require(COMMITS)
        log.create_topic("events", partitions=2, schema=SCHEMA, event_time="at")
        send(log, "events", row(1, -5), partition=0)
        cut(log, "events")
        if log.judges_rows:
            assert log.frontier("events") is None, "there may be any row in the other partition"
        send(log, "events", row(2, -9), partition=1)
        head = cut(log, "events")
        lowest = -9 if log.judges_rows else -5
        expected = to_micros(START + timedelta(minutes=lowest))
        assert log.frontier("events") == log.topic("events").frontier == expected
        assert log.frontier("events", head) == expected
        assert log.frontier("events", 0) is None


def test_a_row_meets_the_times_before_it_however_commits_are_cut(stage: Stage) -> None:
    with needs(stage.log, *TIMES):
        stage.log.require(COMMITS)
        found = {}
        for name, every in (("one", 100), ("each", 1), ("three", 3)):
            stage.log.create_topic(name, partitions=2, schema=SCHEMA, event_time="at")
            for number, minute in enumerate((-9, -3, -8, None, -1, -7, 999_999, -2)):
                event = {"n": number} if minute is None else row(number, minute)
                send(stage.log, name, event, partition=0)
                send(stage.log, name, event, partition=1)
                if number % every == every - 1:
                    cut(stage.log, name)
            head = cut(stage.log, name)
            judged = [
                batch.judged
                for batch in stage.elsewhere().read(
                    name, start=EARLIEST, stop=Commit(head), judged=True
                )
            ]
            if not stage.log.judges_rows:
                assert set(judged) == {None}
                return
            met = np.concatenate([one.frontiers for one in judged if one is not None])
            good = np.concatenate([one.good for one in judged if one is not None])
            found[name] = (met.tolist(), good.tolist())
            counted = sum(commit.misplaced for commit in stage.log.commits(name, 0, 100))
            assert counted == 4 == (~good).sum()
        assert found["one"] == found["each"] == found["three"]


def test_a_heartbeat_is_a_commit_without_rows(stage: Stage) -> None:
    log = stage.log
    with needs(log, *TIMES):
        log.require(COMMITS)
        log.create_topic("events", schema=SCHEMA, event_time="at")
        send(log, "events", row(1, -9))
        at = START - timedelta(minutes=4)
        number = log.advance("events", at)
        assert number == log.head()
        assert log.frontier("events") == to_micros(at)
        assert log.advance("events", at) is None
        send(log, "events", row(2, -6))
        cut(log, "events")
        *_, moved, last = stage.reopen().commits("events", 0, 10)
        assert (moved.number, moved.rows, moved.after) == (number, 0, to_micros(at))
        assert (last.rows, last.before, last.after) == (1, to_micros(at), to_micros(at))


def test_a_row_after_a_heartbeat_is_behind_it(log: Log) -> None:
    with needs(log, *TIMES):
        log.require(COMMITS)
        log.create_topic("events", schema=SCHEMA, event_time="at")
        send(log, "events", row(1, -9))
        log.advance("events", START - timedelta(minutes=4))
        send(log, "events", row(2, -6))
        head = cut(log, "events")
        (commit,) = log.commits("events", head - 1, 1)
        behind = commit.behind
        if behind is None:
            assert commit.before is not None
            assert commit.oldest is not None
            behind = commit.before - commit.oldest
        assert behind == 2 * 60 * 1_000_000
