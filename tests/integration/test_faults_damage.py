"""Damaged files are detected and named, never returned as data, and do not affect the rest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from headrace.errors import (
    CorruptSegment,
    LogError,
)
from headrace.log import Offset, Record
from headrace.log.file.catalog import FILE_NAME
from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog
from headrace.log.file.reader import Reader

LONG = timedelta(hours=1)


def write(log: FileLog, topic: str, first: int, count: int, partition: int = 0) -> None:
    """Commit numbers, five at a time."""
    with log.producer(linger=LONG) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%04d" % number, key=b"%d" % (number % 3), partition=partition)
            if number % 5 == 4:
                producer.flush()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed log with 20 records in each of three partitions."""
    with FileLog(tmp_path / "log") as log:
        log.create_topic("clicks", partitions=3)
        for partition in range(3):
            write(log, "clicks", 0, 20, partition)
    return tmp_path / "log"


def segments(folder: Path, partition: int = 0) -> list[Path]:
    return sorted((folder / "segments").glob(f"*-{partition:05d}-*.arrows"))


def read(log: FileLog, topic: str = "clicks", start: int = 0) -> dict[int, list[Record]]:
    """The readable records of each partition, up to its damage."""
    found: dict[int, list[Record]] = {}
    for partition in range(log.topic(topic).topic.partitions):
        mine = found[partition] = []
        try:
            for batch in log.read(topic, partitions=[partition], start=Offset(start)):
                mine += batch.records()
        except CorruptSegment:
            continue
    return found


def flip(path: Path, position: int, mask: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def chunks(folder: Path) -> list[tuple[Path, int, int]]:
    """The chunks of the log: file, position and length."""
    catalog = apsw.Connection(str(folder / FILE_NAME), flags=apsw.SQLITE_OPEN_READONLY)
    found = [
        (segments(folder, partition)[0], position, length)
        for partition, position, length in catalog.execute(
            "SELECT partition, position, length FROM chunk"
        )
    ]
    catalog.close()
    return found


def test_any_flipped_byte_is_found_and_never_returned_as_data(tmp_path: Path) -> None:
    with FileLog(tmp_path / "log") as log:
        log.create_topic("plain")
        log.create_topic("compacted", settings={"cleanup": "compact", "compression": "lz4"})
        log.create_topic("typed", schema="id string, n bigint", key="id")
        for topic in ("plain", "compacted"):
            write(log, topic, 0, 15)
        with log.producer() as producer:
            for number in range(10):
                producer.send("typed", {"id": f"user-{number}", "n": number})
        log.compact("compacted")
    topics = ("plain", "compacted", "typed")
    with FileLog(tmp_path / "log") as log:
        intact = {topic: read(log, topic)[0] for topic in topics}
        recorded = [(path, at, size) for path, at, size in _chunks_of(tmp_path / "log")]
        chooser = random.Random(20260101)
        total = sum(size for _, _, size in recorded)
        for place in chooser.sample(range(total), 200):
            path, position = _locate(recorded, place)
            mask = chooser.randrange(1, 256)
            flip(path, position, mask)
            damaged = 0
            for topic in topics:
                try:
                    found = [r for batch in log.read(topic) for r in batch.records()]
                except CorruptSegment as error:
                    damaged += 1
                    assert error.details["topic"] == topic
                    offset, end = error.details["offset"], error.details["end"]
                    found = [r for b in log.read(topic, stop=Offset(offset)) for r in b.records()]
                    found += [r for b in log.read(topic, start=Offset(end)) for r in b.records()]
                    lost = [r for r in intact[topic] if offset <= r.offset < end]
                    assert [*found, *lost] != [], "something is named as lost"
                    assert sorted([*found, *lost], key=lambda r: r.offset) == intact[topic]
                else:
                    assert found == intact[topic]
            assert damaged == 1, f"byte {position} of {path.name}, mask {mask:#x}"
            flip(path, position, mask)


def _chunks_of(folder: Path) -> Iterator[tuple[Path, int, int]]:
    catalog = apsw.Connection(str(folder / FILE_NAME), flags=apsw.SQLITE_OPEN_READONLY)
    for segment, position, length in catalog.execute("SELECT segment, position, length FROM chunk"):
        (path,) = (folder / "segments").glob(f"*-{segment:010d}.arrows")
        yield path, position, length
    catalog.close()


def _locate(recorded: list[tuple[Path, int, int]], place: int) -> tuple[Path, int]:
    for path, position, length in recorded:
        if place < length:
            return path, position + place
        place -= length
    raise AssertionError


def test_damage_is_named_by_topic_partition_and_offset(folder: Path) -> None:
    (path,) = segments(folder, 1)
    position, length = next((at, size) for p, at, size in sorted(chunks(folder)) if p == path)
    flip(path, position + length // 2)
    with FileLog(folder) as log:
        with pytest.raises(CorruptSegment, match=r"'clicks'.*offsets 0 to 4.*checksum") as caught:
            list(log.read("clicks"))
        details = caught.value.details
        assert (details["topic"], details["partition"], details["offset"], details["end"]) == (
            "clicks", 1, 0, 5,
        )  # fmt: skip
        assert "seek to 5" in caught.value.hint
        assert str(path) in str(caught.value)


def test_damage_past_the_stop_of_a_read_is_not_met(folder: Path) -> None:
    path, position, length = sorted(chunks(folder))[1]
    flip(path, position + length // 2)
    with FileLog(folder) as log:
        batches = log.read("clicks", partitions=[0], stop=Offset(5))
        assert [r.offset for batch in batches for r in batch.records()] == [0, 1, 2, 3, 4]
        with pytest.raises(CorruptSegment, match="offsets 5 to 9"):
            list(log.read("clicks", partitions=[0], stop=Offset(6)))


def test_a_consumer_goes_on_with_the_other_partitions_and_past_the_damage(folder: Path) -> None:
    for partition in (0, 1):
        (path,) = segments(folder, partition)
        spots = sorted((at, size) for p, at, size in chunks(folder) if p == path)
        flip(path, spots[1][0] + 40)
    with FileLog(folder) as log:
        consumer = log.consumer("clicks", group="readers")
        found: list[Record] = []
        damage: dict[int, int] = {}
        for _ in range(10):
            try:
                found += consumer.poll(max_records=7)
            except CorruptSegment as error:
                damage[error.details["partition"]] = error.details["end"]
        assert damage == {0: 10, 1: 10}
        assert [r.offset for r in found if r.partition == 2] == list(range(20))
        for partition in (0, 1):
            assert [r.offset for r in found if r.partition == partition] == list(range(5))
        for partition, end in damage.items():
            consumer.seek(Offset(end), "clicks", partition)
        found = [record for _ in range(5) for record in consumer.poll()]
        for partition in (0, 1):
            assert [r.offset for r in found if r.partition == partition] == list(range(10, 20))
        consumer.close()
        assert log.group("readers").lag == 0


def test_damage_is_told_even_if_the_other_partitions_never_rest(folder: Path) -> None:
    (path,) = segments(folder, 0)
    flip(path, path.stat().st_size - 20)
    with FileLog(folder) as log, log.consumer("clicks", group="readers") as consumer:
        raised = 0
        for _ in range(5):
            write(log, "clicks", 0, 5, partition=1)
            try:
                consumer.poll()
            except CorruptSegment as error:
                assert error.details["partition"] == 0
                raised += 1
        assert raised == 1


def test_a_poll_that_is_interrupted_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Reader.load
    calls = 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 7:  # in the second partition, after the first one's records are read
            raise KeyboardInterrupt
        return load(*arguments)

    monkeypatch.setattr(Reader, "load", interrupted)
    with FileLog(folder) as log, log.consumer("clicks", group="readers") as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
        found = [(r.partition, r.offset) for r in consumer.poll()]
        assert sorted(found) == [(p, offset) for p in range(3) for offset in range(20)]


@pytest.mark.parametrize("what", ["missing", "truncated", "empty", "zeroed", "swapped"])
def test_a_broken_file_is_damage_in_its_own_partition_only(folder: Path, what: str) -> None:
    (path,) = segments(folder, 1)
    whole = path.read_bytes()
    left = {"truncated": 5 * 2, "missing": 0, "empty": 0, "zeroed": 0, "swapped": 0}
    if what == "missing":
        path.unlink()
    elif what == "truncated":
        spots = sorted(at for p, at, _ in chunks(folder) if p == path)
        path.write_bytes(whole[: spots[2] + 10])
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "zeroed":
        path.write_bytes(bytes(len(whole)))
    else:
        path.write_bytes(segments(folder, 0)[0].read_bytes()[::-1])
    with FileLog(folder) as log:
        found = read(log)
        assert [len(found[partition]) for partition in range(3)] == [20, left[what], 20]
        with pytest.raises(CorruptSegment) as caught:
            list(log.read("clicks", partitions=[1]))
        assert caught.value.details["partition"] == 1
        # It can still be appended to, and new records are intact; without its file it cannot.
        if what == "missing":
            with pytest.raises(LogError, match=path.name):
                write(log, "clicks", 20, 5, partition=1)
        else:
            write(log, "clicks", 20, 5, partition=1)
            assert [r.value for r in read(log, start=20)[1]] == [b"%04d" % n for n in range(20, 25)]
        write(log, "clicks", 20, 5, partition=2)
        assert len(read(log)[2]) == 25


def test_a_missing_file_does_not_keep_others_from_writing(tmp_path: Path) -> None:
    with FileLog(tmp_path / "log") as log:
        log.create_topic("clicks", partitions=2)
        with log.producer(acks="written") as producer:
            producer.send("clicks", b"not synced yet", partition=0)
        segments(tmp_path / "log", 0)[0].unlink()
        write(log, "clicks", 0, 5, partition=1)
        assert [len(found) for found in read(log).values()] == [0, 5]


def test_upkeep_of_a_damaged_topic_says_so_and_destroys_nothing(tmp_path: Path) -> None:
    with FileLog(tmp_path / "log") as log:
        log.create_topic("users", settings={"cleanup": "compact", "segment_bytes": "2KiB"})
        write(log, "users", 0, 40)
        before = read(log, "users")[0]
        path = segments(tmp_path / "log")[0]
        flip(path, path.stat().st_size - 20)
        with pytest.raises(CorruptSegment):
            log.compact("users")
        flip(path, path.stat().st_size - 20)
        assert read(log, "users")[0] == before
        log.compact("users")
        assert len(read(log, "users")[0]) == 3


class Rebooted(Disk):
    """The disk of a machine after a reboot."""

    def boot(self) -> str:
        return "another boot"


def test_a_machine_that_was_down_takes_nothing_back_that_is_on_a_tier(tmp_path: Path) -> None:
    with FileLog(tmp_path / "log") as log:
        tier = str(tmp_path / "tier")
        log.create_topic("clicks", settings={"segment_bytes": "1KiB", "tier": tier})
        with log.producer(acks="written", linger=LONG) as producer:
            for number in range(5):
                producer.send("clicks", b"%d" % number * 1000)
                producer.flush()
        log.upkeep()
        assert log.topic("clicks").partitions[0].tiered_segments == 4
    with FileLog(tmp_path / "log", disk=Rebooted()) as log:
        assert [r.value[:1] for r in read(log)[0]] == [b"0", b"1", b"2", b"3", b"4"]
