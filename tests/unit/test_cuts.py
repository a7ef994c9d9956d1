"""Merging of cuts: every reader of the journal has the same commits."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.kafka.cuts import NONE, Index, Record, Stretch, TopicCuts


def ends(cuts: TopicCuts) -> list[tuple[int, tuple[int, ...]]]:
    return [(number, cuts.at(number).ends) for number in cuts.numbers]


def test_a_cut_that_comes_too_late_changes_nothing() -> None:
    cuts = TopicCuts()
    cuts.add(1, [Stretch(0, 0, 10, 10, 0, 5, NONE, 9)])
    cuts.add(2, [Stretch(0, 0, 20, 20, 0, 5, NONE, 12)])
    cuts.add(3, [Stretch(0, 10, 20, 10, 0, 7, 9, 12)])
    assert ends(cuts) == [(1, (10,)), (3, (20,))]
    assert [commit.rows for commit in cuts.after(0, 10)] == [10, 10]


def test_partitions_are_merged_one_by_one() -> None:
    cuts = TopicCuts()
    cuts.add(1, [Stretch(0, 0, 5, 5), Stretch(1, 0, 0)])
    cuts.add(2, [Stretch(0, 0, 9, 9), Stretch(1, 0, 3, 3)])
    assert ends(cuts) == [(1, (5, 0)), (2, (5, 3))]


def test_a_partition_that_was_added_begins_at_the_lowest_frontier() -> None:
    cuts = TopicCuts()
    cuts.add(1, [Stretch(0, 0, 1, 1, 0, 50, NONE, 50), Stretch(1, 0, 1, 1, 0, 30, NONE, 30)])
    cuts.add(2, [Stretch(2, 0, 0)])
    assert cuts.last.frontiers == (50, 30, 30)


def test_rows_whose_frontier_was_advanced_meanwhile_may_be_late() -> None:
    cuts = TopicCuts()
    cuts.add(1, [Stretch(0, 0, 1, 1, 0, 10, NONE, 10)])
    cuts.advance(2, 100)
    cuts.add(3, [Stretch(0, 1, 2, 1, 0, 11, 10, 11, 0)])
    (found,) = cuts.after(2, 1)
    assert found.behind is not None
    assert found.behind > 10**15
    assert (found.before, found.after) == (100, 100)


def test_a_record_of_a_cut_is_found_by_its_offset() -> None:
    cuts = TopicCuts()
    cuts.add(4, [Stretch(0, 5, 10, 5)])
    cuts.add(7, [Stretch(0, 10, 12, 2), Stretch(1, 0, 3, 3)])
    numbers = {
        offset: (cut := cuts.covering(0, offset)) and cut.number for offset in (4, 5, 9, 10, 11, 12)
    }
    assert numbers == {4: None, 5: 4, 9: 4, 10: 7, 11: 7, 12: None}
    assert [cuts.of(0, offset).number for offset in (5, 9, 10, 12)] == [0, 0, 4, 7]
    assert cuts.at(6).ends == (10,)
    assert cuts.at(3).ends == (5, 0)


def test_a_record_is_the_same_after_it_was_written_and_read() -> None:
    record = Record({7: (Stretch(0, 1, 5, 4, 1, -3, NONE, 9, 12),)}, {2**100: 5}, 99)
    assert Record.from_json(record.to_json()) == record


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(1, 5)), max_size=30))
def test_whatever_is_appended_each_record_is_in_one_commit(
    attempts: list[tuple[int, int, int]],
) -> None:
    index = Index()
    index.add(Record(made=1), 0)
    held = [0, 0, 0]
    for time, (partition, back, rows) in enumerate(attempts, 1):
        start = max(0, held[partition] - back)
        stretches = [Stretch(p, 0, 0) for p in range(partition)]
        stretch = Stretch(partition, start, start + rows, rows)
        known = len(index.topics[1].last.ends) if 1 in index.topics else 0
        index.add(Record({1: (*stretches[known:], stretch)}), time)
        if back == 0 or start == held[partition]:
            held[partition] = start + rows
    if not attempts:
        return
    cuts = index.topics[1]
    assert list(cuts.last.ends) == held[: len(cuts.last.ends)]
    for partition, end in enumerate(cuts.last.ends):
        for offset in range(end):
            cut = cuts.covering(partition, offset)
            assert cut is not None
            before = cuts.at(cut.number - 1).ends
            assert (before[partition] if partition < len(before) else 0) <= offset
            assert offset < cut.ends[partition]


def test_a_cut_of_ten_thousand_partitions_fits_in_a_record() -> None:
    stretch = Stretch(0, 10**9, 10**9 + 250, 250, 3, -(10**15), 1, 2 * 10**15, 10**9)
    record = Record({2**127: tuple(replace(stretch, partition=p) for p in range(10_000))})
    text = record.to_json()
    assert Record.from_json(text) == record
    assert len(lz4_frame(text)) < 1_000_000


def lz4_frame(data: bytes) -> bytes:
    """The data as Kafka's client sends it."""
    return bytes(pa.compress(data, codec="lz4", asbytes=True))
