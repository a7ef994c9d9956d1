"""A full or read-only disk, and lost acknowledgements."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import DiskFull, LogBusy, ReadOnlyLog, Retryable
from headrace.log import Producer
from headrace.log.file.disk import Disk, translated
from headrace.log.file.log import FileLog
from tests.integration.processes import mounted, values

LONG = timedelta(hours=1)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A mounted filesystem of 1 MiB."""
    folder = tmp_path / "small"
    if not mounted(folder, "1m"):
        pytest.skip("only root may mount a filesystem")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


class FullDisk(Disk):
    """A disk with room for this many more bytes, which writes the part of a write that fits."""

    room = 1 << 40

    def write(self, path: Path, pieces: Iterable[Any], position: int) -> None:
        with translated(path):
            for piece in pieces:
                fits = bytes(memoryview(piece)[: self.room])
                super().write(path, [fits], position)
                self.room -= len(fits)
                position += len(fits)
                if len(fits) < len(memoryview(piece)):
                    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("linger", [LONG, timedelta(milliseconds=1)], ids=["called", "background"])
@pytest.mark.parametrize("room", [0, 1, 400, 700, 1000, 1300])
def test_a_commit_that_finds_the_disk_full_can_be_tried_again(
    tmp_path: Path, room: int, linger: timedelta
) -> None:
    disk = FullDisk()
    with FileLog(tmp_path / "log", disk=disk) as log:
        log.create_topic("clicks", partitions=2)
        producer = log.producer(id="loader", linger=linger)
        producer.append("clicks", pa.table({"value": ["before"]}), partition=0)
        # A message takes about 600 bytes, and a new segment has a header of about 400.
        disk.room = room
        deliveries = [producer.send("clicks", b"x" * 300, partition=p) for p in (0, 1)]
        with pytest.raises(DiskFull) as caught:
            producer.flush()
        assert isinstance(caught.value, Retryable)
        assert values(log) == [b"before"], "nothing of the commit is visible"
        assert not any(delivery.done for delivery in deliveries)
        disk.room = 1 << 40
        producer.flush()
        producer.send("clicks", b"after", partition=0)
        producer.close()
        assert values(log) == [b"before", b"x" * 300, b"after", b"x" * 300]
        assert log.head() == 3
    with FileLog(tmp_path / "log") as log:
        assert values(log) == [b"before", b"x" * 300, b"after", b"x" * 300]


class LostAnswer(Disk):
    """A disk on which the commit succeeds, and the producer still gets an error."""

    lies = False

    def step(self, name: str) -> None:
        if name == "committed" and self.lies:
            self.lies = False
            raise LogBusy("The answer was lost on the way")


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_flush_after_a_lost_answer_adds_nothing(tmp_path: Path, repeats: int) -> None:
    disk = LostAnswer()
    with FileLog(tmp_path / "log", disk=disk) as log:
        log.create_topic("clicks")
        producer = log.producer(linger=LONG)
        for number in range(repeats):
            delivery = producer.send("clicks", b"%d" % number)
            disk.lies = True
            with pytest.raises(LogBusy):
                producer.flush()
            producer.flush()
            assert delivery.wait().duplicate
        producer.close()
        assert values(log) == [b"%d" % number for number in range(repeats)]


def test_an_append_after_a_lost_answer_adds_nothing_if_it_has_its_number(tmp_path: Path) -> None:
    disk = LostAnswer()
    with FileLog(tmp_path / "log", disk=disk) as log:
        log.create_topic("clicks")
        with log.producer(id="loader", linger=LONG) as producer:
            disk.lies = True
            with pytest.raises(LogBusy):
                producer.append("clicks", pa.table({"value": ["a"]}), sequence=0)
            assert producer.append("clicks", pa.table({"value": ["a"]}), sequence=0).duplicate
            disk.lies = True
            with pytest.raises(LogBusy):
                producer.append("clicks", pa.table({"value": ["b"]}), sequence=1)
            # The next record is not mistaken for the lost one.
            producer.send("clicks", b"c")
        assert values(log) == [b"a", b"b", b"c"]


def fill(folder: Path, leave: int) -> Path:
    """Fill the disk except for about `leave` bytes."""
    ballast = folder / "ballast"
    free = shutil.disk_usage(folder).free
    ballast.write_bytes(bytes(max(0, free - leave)))
    return ballast


def send_until_full(producer: Producer) -> int:
    """The number of single-record commits that succeeded."""
    for number in range(10_000):
        producer.send("clicks", b"%06d" % number * 100)
        try:
            producer.flush()
        except DiskFull:
            return number
    raise AssertionError("the disk is never full")


@pytest.mark.parametrize("leave", [0, 4_096, 12_288, 40_960, 200_000])
def test_a_filesystem_without_space_loses_nothing_and_recovers(small: Path, leave: int) -> None:
    # Depending on the space left, a segment, SQLite's WAL or its index finds no room.
    with FileLog(small / "log") as log:
        log.create_topic("clicks", settings={"segment_bytes": "16KiB"})
        producer = log.producer(linger=LONG)
        producer.append("clicks", pa.table({"value": ["before"]}))
        ballast = fill(small, leave)
        done = send_until_full(producer)
        expected = [b"before", *(b"%06d" % number * 100 for number in range(done))]
        assert values(log) == expected
        with pytest.raises(DiskFull):
            producer.flush()
        with pytest.raises(DiskFull):
            log.producer(linger=LONG).append("clicks", pa.table({"value": [b"x" * 100_000]}))
        assert values(log) == expected
        ballast.unlink()
        producer.flush()
        expected.append(b"%06d" % done * 100)
        assert values(log) == expected, "the very batch that failed, and only once"
        producer.close()
        assert [record.offset for b in log.read("clicks") for record in b.records()] == list(
            range(len(expected))
        )
    with FileLog(small / "log") as log:
        assert values(log) == expected


def test_a_log_cannot_be_made_where_there_is_no_space(small: Path) -> None:
    ballast = fill(small, 0)
    with pytest.raises(DiskFull):
        FileLog(small / "log")
    ballast.unlink()
    with FileLog(small / "log") as log:
        assert log.topics() == []


def test_a_log_on_a_filesystem_that_turns_read_only_can_be_read(small: Path) -> None:
    with FileLog(small / "log") as log:
        log.create_topic("clicks")
        with log.producer() as producer:
            producer.send("clicks", b"before")
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    try:
        with FileLog(small / "log") as log:
            assert values(log) == [b"before"]
            with pytest.raises(ReadOnlyLog):
                log.producer().append("clicks", pa.table({"value": ["x"]}))
        with pytest.raises(ReadOnlyLog):
            FileLog(small / "other")
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small)], check=True)
    with FileLog(small / "log") as log:
        assert values(log) == [b"before"]
