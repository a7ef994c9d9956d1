"""The frontiers of partitions on Kafka, as they are stored with a position."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import PipelineError
from headrace.plan.kafka.frontiers import FrontierNotes, Frontiers
from headrace.plan.metadata import NO_FRONTIER
from headrace.plan.position import Position


def test_a_position_keeps_its_frontiers_as_json() -> None:
    place = Position(3, (5, 7), frontiers=(10, NO_FRONTIER))
    assert Position.from_json(place.to_json()).frontiers == (10, NO_FRONTIER)
    assert Position.from_json(Position(3, (5, 7)).to_json()).frontiers is None


def test_at_the_beginning_a_partition_has_no_frontier() -> None:
    assert Frontiers.at({"t": Position(0, (0, 0))}, None).lowest == NO_FRONTIER


def test_a_position_of_an_earlier_version_has_one_frontier_for_all() -> None:
    """By it, Spark has evicted windows already."""
    frontiers = Frontiers.at({"t": Position(4, (9, 9))}, 77)
    assert frontiers.topics == {"t": (77, 77)}


def test_the_lowest_frontier_is_that_of_all_partitions_of_all_topics() -> None:
    assert Frontiers({"a": (5, 9), "b": (7, 3)}).lowest == 3


def test_a_frontier_never_goes_back() -> None:
    end = {"t": Position(1, (5, 5))}
    after = Frontiers({"t": (10, 10)}).after({("t", 0): 8, ("t", 1): 12}, end)
    assert after["t"].frontiers == (10, 12)


def test_a_partition_that_was_added_begins_at_the_lowest_frontier() -> None:
    end = {"t": Position(1, (5, 5, 2))}
    after = Frontiers({"t": (10, 20)}).after({}, end)
    assert after["t"].frontiers == (10, 20, 10)


def test_a_checkpoint_notes_where_its_last_batches_began(tmp_path: Path) -> None:
    notes = FrontierNotes(tmp_path)
    for number in range(4):
        notes.write(number, Frontiers({"t": (number, NO_FRONTIER)}))
    assert notes.read(3).topics == {"t": (3, NO_FRONTIER)}
    assert notes.read(2).lowest == NO_FRONTIER
    with pytest.raises(PipelineError, match="is damaged"):
        notes.read(1)
