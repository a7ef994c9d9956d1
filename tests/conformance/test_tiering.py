"""Tiering: closed segments move to another filesystem and are read from there."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headrace.errors import CorruptSegment, InvalidSetting, OffsetOutOfRange
from headrace.log import Capability, Log, Offset
from tests.conformance.stage import Stage, delete, needs, offsets, send, values

MINUTE = timedelta(minutes=1)
TIERING = (Capability.TIERING, Capability.UPKEEP)


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    return tmp_path / "tier"


def declare(stage: Stage, tier: Path | str, count: int = 4, **settings: str) -> Log:
    """A topic with one record a minute, each in its own segment."""
    stage.log.create_topic("clicks", settings={"segment_age": "1m", "tier": str(tier), **settings})
    for number in range(count):
        send(stage.log, "clicks", b"%d" % number, key=b"%d" % (number % 2))
        stage.later(MINUTE)
    return stage.log


def files(tier: Path) -> list[Path]:
    return sorted(path for path in tier.rglob("*") if path.is_file())


@pytest.mark.parametrize("form", ["a plain folder", "a URL"])
def test_closed_segments_are_moved_and_still_readable(stage: Stage, tier: Path, form: str) -> None:
    with needs(stage.log, *TIERING):
        log = declare(stage, tier if form == "a plain folder" else tier.as_uri())
        (report,) = log.upkeep("clicks")
        assert report.segments_tiered == 3
        state = log.topic("clicks").partitions[0]
        assert (state.segments, state.tiered_segments) == (4, 3)
        assert len(files(tier)) == 3
        assert values(log, "clicks") == [b"0", b"1", b"2", b"3"]
        assert values(log, "clicks", start=Offset(1), stop=Offset(2)) == [b"1"]
        assert values(stage.reopen(), "clicks") == [b"0", b"1", b"2", b"3"]


def test_what_was_only_written_can_be_tiered_and_synced_commits_go_on(
    stage: Stage, tier: Path
) -> None:
    with needs(stage.log, *TIERING):
        log = declare(stage, tier, count=0)
        for number in range(3):
            with log.producer(acks="written") as producer:
                producer.send("clicks", b"%d" % number)
            stage.later(MINUTE)
        log.upkeep()
        assert len(files(tier)) == 2
        with log.producer(acks="synced") as producer:
            producer.send("clicks", b"3")
        assert values(log, "clicks") == [b"0", b"1", b"2", b"3"]


def test_tiering_again_moves_nothing(stage: Stage, tier: Path) -> None:
    with needs(stage.log, *TIERING):
        log = declare(stage, tier)
        log.upkeep()
        (report,) = log.upkeep()
        assert report.segments_tiered == 0
        assert len(files(tier)) == 3


def test_a_segment_stays_local_for_as_long_as_asked(stage: Stage, tier: Path) -> None:
    with needs(stage.log, *TIERING):
        log = declare(stage, tier, tier_after="1h")
        log.upkeep()
        assert files(tier) == []
        stage.later(timedelta(hours=2))
        log.upkeep()
        assert len(files(tier)) == 3


def test_reading_goes_on_while_segments_move(stage: Stage, tier: Path) -> None:
    with needs(stage.log, *TIERING):
        log = declare(stage, tier, 6)
        scan = log.read("clicks")
        consumer = log.consumer("clicks")
        found = [r.value for r in next(scan).records()]
        polled = [r.value for r in consumer.poll(max_records=1)]
        stage.elsewhere().upkeep()
        found += [r.value for batch in scan for r in batch.records()]
        polled += [r.value for r in stage.drain(consumer)]
        assert found == polled == [b"%d" % number for number in range(6)]


def test_retention_deletes_what_is_on_the_tier(stage: Stage, tier: Path) -> None:
    with needs(stage.log, *TIERING):
        log = declare(stage, tier, retention="3m")
        log.upkeep()
        assert len(files(tier)) > 0
        stage.later(timedelta(hours=1))
        log.upkeep()
        assert files(tier) == []
        assert offsets(log, "clicks") == []
        with pytest.raises(OffsetOutOfRange, match="from 4 up to 4"):
            log.read("clicks", start=Offset(0))


def test_compaction_takes_over_what_is_on_the_tier(stage: Stage, tier: Path) -> None:
    with needs(stage.log, *TIERING):
        log = declare(stage, tier, cleanup="compact", tombstone_retention="1s")
        log.upkeep()
        before = set(files(tier))
        assert len(before) == 2
        delete(log, "clicks", "1")
        stage.later(MINUTE)
        log.compact("clicks")
        assert values(log, "clicks") == [b"2"]
        assert len(before & set(files(tier))) == 1, "what has nothing to lose stays where it is"
        log.upkeep()
        assert values(stage.reopen(), "clicks") == [b"2"]


def test_a_deleted_topic_leaves_nothing_on_the_tier(stage: Stage, tier: Path) -> None:
    with needs(stage.log, *TIERING):
        log = declare(stage, tier)
        log.upkeep()
        log.delete_topic("clicks")
        assert files(tier) == []


def test_a_segment_missing_from_the_tier_is_named(stage: Stage, tier: Path) -> None:
    with needs(stage.log, *TIERING):
        log = declare(stage, tier)
        log.upkeep()
        files(tier)[1].unlink()
        with pytest.raises(CorruptSegment, match="missing") as caught:
            values(log, "clicks")
        assert (caught.value.details["topic"], caught.value.details["offset"]) == ("clicks", 1)
        assert values(log, "clicks", start=Offset(2)) == [b"2", b"3"]


def test_two_logs_may_share_a_tier(stage: Stage, tier: Path, tmp_path: Path) -> None:
    with needs(stage.log, *TIERING):
        log = declare(stage, tier)
        other = Stage(type(stage.backend)(tmp_path / "other"), stage.log)
        other.log = other.backend.open()
        declare(other, tier)
        log.upkeep()
        other.log.upkeep()
        log.delete_topic("clicks")
        assert values(other.log, "clicks") == [b"0", b"1", b"2", b"3"]
        other.backend.close()


@pytest.mark.parametrize("tier", ["nope://bucket/folder", "s3://[bad", "http://host/x"])
def test_a_tier_that_cannot_be_used_is_refused_when_it_is_set(log: Log, tier: str) -> None:
    with needs(log, Capability.TIERING), pytest.raises(InvalidSetting, match="tier"):
        log.create_topic("clicks", settings={"tier": tier})
    log.create_topic("clicks")
    with needs(log, Capability.TIERING), pytest.raises(InvalidSetting, match="tier"):
        log.alter_topic("clicks", settings={"tier": tier})
    assert log.topic("clicks").topic.settings.tier is None
