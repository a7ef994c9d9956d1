"""Recovery rolls back whole commits after a power cut, and never a synced one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import apsw
import pyarrow as pa
import pytest

from headrace.clock import VirtualClock
from headrace.log import Log
from headrace.log.file.compaction import Compactor
from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog
from tests.recovery.lossy import LossyDisk

HOUR = timedelta(hours=1)


class NextBoot(Disk):
    def boot(self) -> str:
        return "after the crash"


def values(log: Log, topic: str = "t") -> list[bytes]:
    return [r.value for batch in log.read(topic) for r in batch.records()]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_700_000_000_000_000)


@contextmanager
def after_losing(log: FileLog, topic: int) -> Iterator[FileLog]:
    """The log after a reboot that lost the last bytes of a topic's segment."""
    log.close()
    (path,) = (log.folder / "segments").glob(f"{topic:06d}-*")
    path.write_bytes(path.read_bytes()[:-1])
    with FileLog(log.folder, disk=NextBoot()) as again:
        yield again


# Recovery


def test_a_producer_whose_commit_was_taken_back_may_commit_it_again(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log")
    log.create_topic("t")
    rows = [pa.table({"value": [str(number)]}) for number in range(3)]
    with log.producer(id="w", acks="written") as producer:
        for number in range(3):
            producer.append("t", rows[number], sequence=number)
    with after_losing(log, 1) as again, again.producer(id="w") as producer:
        assert producer.next_sequence == 2
        assert not producer.append("t", rows[2], sequence=2).duplicate
        assert producer.append("t", rows[1], sequence=1).duplicate
        assert values(again) == [b"0", b"1", b"2"]


def test_a_group_reads_what_comes_in_place_of_records_that_were_taken_back(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log")
    log.create_topic("t")
    with log.producer(acks="written") as producer:
        for number in range(3):
            producer.send("t", str(number)).wait()
    with log.consumer("t", group="g") as consumer:
        assert len(consumer.poll()) == 3
    assert log.group("g").lags[0].committed == 3
    with after_losing(log, 1) as again:
        assert again.group("g").lags[0].committed == 2
        with again.producer() as producer:
            producer.send("t", "new").wait()
        with again.consumer("t", group="g") as consumer:
            assert [record.value for record in consumer.poll()] == [b"new"]


# Guarantees


def crashes(log: FileLog, disk: LossyDisk, home: Path, count: int = 12) -> Iterator[FileLog]:
    """The log in each state that a power cut may leave now."""
    for seed in range(count):
        after = home / f"after-{seed}"
        disk.crash(log.folder, after, random.Random(seed))
        with FileLog(after, disk=NextBoot()) as again:
            yield again


@pytest.fixture
def disk() -> LossyDisk:
    return LossyDisk()


@pytest.fixture
def lossy(tmp_path: Path, clock: VirtualClock, disk: LossyDisk) -> Iterator[FileLog]:
    with FileLog(tmp_path / "log", clock=clock, disk=disk) as log:
        yield log


def test_a_topic_that_was_created_is_there_after_a_power_cut(
    lossy: FileLog, disk: LossyDisk, tmp_path: Path
) -> None:
    lossy.create_topic("t")
    for again in crashes(lossy, disk, tmp_path):
        assert [topic.name for topic in again.topics()] == ["t"]


def test_a_producer_that_was_fenced_stays_so_after_a_power_cut(
    lossy: FileLog, disk: LossyDisk, tmp_path: Path
) -> None:
    for _ in range(3):
        lossy.producer(id="p").close()
    for again in crashes(lossy, disk, tmp_path):
        catalog = apsw.Connection(str(again.folder / "catalog.db"))
        assert catalog.execute("SELECT epoch FROM producer WHERE id = 'p'").get == 3
        catalog.close()


def test_what_retention_removed_is_not_missed_after_a_power_cut(
    lossy: FileLog, disk: LossyDisk, tmp_path: Path, clock: VirtualClock
) -> None:
    lossy.create_topic("t", settings={"retention": "1h", "segment_bytes": "1KiB"})
    with lossy.producer() as producer:
        for number in range(4):
            producer.send("t", f"{number}" * 600).wait()
    clock.advance(2 * HOUR)
    assert lossy.upkeep()[0].segments_deleted == 4
    for again in crashes(lossy, disk, tmp_path):
        assert values(again) == []


def test_a_segment_is_removed_after_its_copy_on_the_tier_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def fsync(file: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{file}"))

    class Removing(Disk):
        def remove(self, path: Path) -> None:
            if path.exists():
                seen.append(f"removed {path.name}")
            super().remove(path)

    with FileLog(tmp_path / "log", disk=Removing()) as log:
        settings = {"segment_bytes": "1KiB", "tier": str(tmp_path / "tier")}
        log.create_topic("t", settings=settings)
        with log.producer() as producer:
            for number in range(2):
                producer.send("t", f"{number}" * 800).wait()
        monkeypatch.setattr("headrace.log.file.storage.os.fsync", fsync)
        assert log.upkeep()[0].segments_tiered == 1
    (copy,) = (tmp_path / "tier").rglob("*.arrows")
    removed = seen.index(f"removed {copy.stem.rpartition('-')[0]}.arrows")
    assert {str(copy), str(copy.parent), str(copy.parent.parent)} <= set(seen[:removed])


# Rivals


def test_a_compaction_that_a_rival_has_overtaken_brings_no_deleted_key_back(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, rival = (FileLog(tmp_path / "log", clock=clock) for _ in range(2))
    settings = {"cleanup": "compact", "tombstone_retention": "1h", "segment_bytes": "1KiB"}
    log.create_topic("t", settings=settings)
    with log.producer() as producer:
        for key, value in [("x", "1"), ("x", "2" * 600), ("k", "3")]:
            producer.send("t", value, key=key)
    with log.producer() as producer:
        producer.send("t", None, key="k").wait()  # in a second segment
        producer.send("t", "4" * 900, key="y").wait()
    clock.advance(2 * HOUR)
    closed, swap = Compactor._closed, Compactor._swap

    def swap_late(compactor: Compactor, *arguments: object) -> object:
        # Meanwhile the rival compacts the first segment, unaware of the tombstone.
        monkeypatch.setattr(Compactor, "_swap", swap)
        monkeypatch.setattr(Compactor, "_closed", lambda *given: closed(*given)[:1])
        assert rival._compacted("t", all_segments=False).segments_compacted == 1
        monkeypatch.setattr(Compactor, "_closed", closed)
        return swap(compactor, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Compactor, "_swap", swap_late)
    log.compact("t")
    assert [r.key for batch in log.read("t") for r in batch.records()] == [b"x", b"y"]
    for each in (log, rival):
        each.close()


def test_a_member_lets_go_of_nothing_that_is_another_members(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with FileLog(tmp_path / "log", clock=clock) as log:
        log.create_topic("t")
        coordinator, topic = log._coordinator, log._row("t")
        first = coordinator.join("g", [topic], "sticky", None, 10_000_000)
        mine = coordinator.sync(first).owned
        clock.sleep(11_000_000)
        second = coordinator.join("g", [topic], "sticky", None, 10_000_000)
        assert coordinator.sync(second).owned == mine
        coordinator.release(first, mine)
        assert log.group("g").lags[0].member == second.id
