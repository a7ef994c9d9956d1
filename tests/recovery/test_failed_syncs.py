"""A failed sync is remembered: no commit builds on bytes that the device may have lost."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.clock import VirtualClock
from headrace.errors import CorruptSegment, LogError
from headrace.log import Log, Offset
from headrace.log.file import tails
from headrace.log.file.disk import Disk, translate
from headrace.log.file.log import FileLog
from headrace.log.roles import Acks
from tests.recovery.lossy import LossyDisk


class NextBoot(Disk):
    def boot(self) -> str:
        return "after the crash"


def values(log: Log) -> list[bytes]:
    return [r.value for batch in log.read("t") for r in batch.records()]


def send(log: Log, value: str, acks: Acks) -> None:
    with log.producer(acks=acks) as producer:
        producer.send("t", value).wait()


@pytest.mark.parametrize("kind", ["segment", "folder", "catalog"])
def test_what_is_synced_after_a_failed_sync_survives_a_power_cut_with_all_before_it(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "segment":
        monkeypatch.setattr(tails, "TAIL_BYTES", 0)
    folder, after = tmp_path / "log", tmp_path / "after"
    for seed in range(8):
        choose = random.Random(seed)
        for path in (folder, after):
            shutil.rmtree(path, ignore_errors=True)
        disk = LossyDisk()
        with FileLog(folder, disk=disk, clock=VirtualClock(0)) as log:
            log.create_topic("t")
            if kind != "folder" and choose.random() < 0.5:  # a folder is synced for a new segment
                send(log, "first", "synced")
            send(log, "written", "written")
            disk.failing = {kind}
            for _ in range(choose.randint(1, 2)):
                with pytest.raises(LogError):
                    send(log, "refused", "synced")
            disk.failing = set()
            if choose.random() < 0.5:
                send(log, "written later", "written")
            there = values(log)
            assert b"refused" not in there
            send(log, "synced", "synced")
            disk.crash(folder, after, choose)
            assert values(log) == [*there, b"synced"]
        with FileLog(after, disk=NextBoot()) as again:
            assert values(again) == [*there, b"synced"], seed


@pytest.mark.parametrize("lost", [0, 1])
def test_a_failed_sync_of_segments_with_tails_loses_nothing(
    tmp_path: Path, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "TAILS", 3)
    folder, after = tmp_path / "log", tmp_path / "after"
    disk = LossyDisk()
    with FileLog(folder, disk=disk, clock=VirtualClock(0)) as log:
        log.create_topic("t")
        for value in ("first", "second", "third"):
            send(log, value, "synced")
        disk.failing = {"segment"}
        for _ in range(lost):
            with pytest.raises(LogError):
                send(log, "refused", "synced")
            (segment,) = (path for path in segments(folder) if path.suffix == ".arrows")
            segment.write_bytes(segment.read_bytes().replace(b"second", b"s?cond"))
        disk.failing = set()
        send(log, "fourth", "synced")
        disk.crash(folder, after, random.Random(1))
        there = values(log)
    assert there == [b"first", b"second", b"third", b"fourth"]
    with FileLog(after, disk=NextBoot()) as again:
        assert values(again) == there


class Recording(Disk):
    """The real disk, which records syncs; they fail while `fails` is set.

    `meanwhile` is called when one fails, as another process would act.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.meanwhile: Callable[[], None] = lambda: None
        self.synced: list[Path] = []

    def sync(self, path: Path) -> None:
        super().sync(path)
        if self.fails:
            self.meanwhile()
            raise translate(OSError(errno.EIO, os.strerror(errno.EIO)), path)
        self.synced.append(path)


def segments(folder: Path) -> set[Path]:
    return set((folder / "segments").iterdir())


@pytest.fixture
def disk() -> Recording:
    return Recording()


def test_a_segment_that_is_on_the_tier_is_not_synced_here(tmp_path: Path, disk: Recording) -> None:
    clock = VirtualClock(0)
    settings = {"tier": str(tmp_path / "tier"), "segment_age": "1m"}
    with FileLog(tmp_path / "log", disk=disk, clock=clock) as log:
        log.create_topic("t", settings=settings)
        for value in ("tiered", "here"):
            send(log, value, "written")
            clock.advance(timedelta(minutes=2))
        tiered, here = sorted(segments(tmp_path / "log"))
        (report,) = log.upkeep("t")
        assert report.segments_tiered == 1
        assert here in disk.synced
        assert tiered not in disk.synced
        assert values(log) == [b"tiered", b"here"]


@pytest.fixture
def log(tmp_path: Path, disk: Recording) -> Iterator[FileLog]:
    """A log with a commit that was only written, and whose sync has failed."""
    with FileLog(tmp_path / "log", disk=disk) as log:
        log.create_topic("t")
        send(log, "written", "written")
        disk.fails = True
        with pytest.raises(LogError, match="Nothing of this commit is visible"):
            send(log, "refused", "synced")
        disk.fails = False
        yield log


def test_another_process_does_not_build_on_a_segment_that_could_not_be_synced(
    log: FileLog,
) -> None:
    before = segments(log.folder)
    theirs = Recording()
    with FileLog(log.folder, disk=theirs) as other:
        send(other, "synced", "synced")
        assert not before & set(theirs.synced)
        assert values(other) == values(log) == [b"written", b"synced"]
        send(log, "more", "synced")
        log.upkeep()
        assert values(other) == [b"written", b"synced", b"more"]
    assert not before & segments(log.folder), "the doubtful file and its mark are garbage"


def test_a_reader_at_work_goes_on_after_a_segment_was_written_anew(log: FileLog) -> None:
    with log.consumer("t") as consumer:
        assert [r.value for r in consumer.poll()] == [b"written"]
        send(log, "synced", "synced")
        log.upkeep()
        assert [r.value for r in consumer.poll()] == [b"synced"]


def test_records_that_the_disk_lost_are_damage_and_the_log_goes_on(
    log: FileLog, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = (log.folder / "segments").glob("*.arrows")
    data = bytearray(path.read_bytes())
    data[data.index(b"written")] ^= 1
    path.write_bytes(data)
    send(log, "synced", "synced")
    assert "lost the records of partition 0 from offset 0" in caplog.text
    with pytest.raises(CorruptSegment):
        values(log)
    assert [r.value for batch in log.read("t", start=Offset(1)) for r in batch.records()] == [
        b"synced"
    ]


def test_a_sync_that_failed_in_the_background_is_not_forgotten_either(
    tmp_path: Path, disk: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log.file.segments._UNSYNCED_BYTES", 0)
    with FileLog(tmp_path / "log", disk=disk) as log:
        log.create_topic("t", settings={"segment_bytes": "1KiB"})
        disk.fails = True
        for _ in range(2):
            send(log, "x" * 1_000, "written")  # the second closes the segment of the first
        log._upkeep.close()
        disk.fails = False
        first = min((tmp_path / "log" / "segments").glob("*.arrows"))
        disk.synced.clear()
        send(log, "synced", "synced")
        assert first not in disk.synced
        assert len(values(log)) == 3


def test_what_failed_in_the_background_is_written_anew_though_another_process_noted_a_sync(
    tmp_path: Path, disk: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileLog(tmp_path / "log", disk=disk) as log, FileLog(tmp_path / "log") as other:
        log.create_topic("t", settings={"segment_bytes": "1KiB"})
        for _ in range(2):
            send(log, "x" * 1_000, "written")  # the second closes the segment of the first
        for one in (log, other):
            one._upkeep.close()
        first = min(segments(log.folder))
        monkeypatch.setattr("headrace.log.file.segments._UNSYNCED_BYTES", 0)
        disk.fails = True
        disk.meanwhile = lambda: send(other, "synced", "synced")
        with pytest.raises(LogError):
            log._upkeep._segments.sync_closed()
        disk.fails = False
        send(log, "more", "synced")
        log.upkeep()
        assert first not in segments(log.folder)
        assert len(values(log)) == 4
