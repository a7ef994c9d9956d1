"""A log keeps few files open, for any number of segments."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog

PARTITIONS = 1_200
USUAL_LIMIT = 1_024


@pytest.fixture
def limited() -> Iterator[None]:
    """Set the usual limit of open files for a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_LIMIT, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files(folder: Path) -> int:
    """The number of open files of this process in a folder."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith(str(folder))
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    return found


@pytest.mark.usefixtures("limited")
def test_more_partitions_than_descriptors_are_written_and_read(tmp_path: Path) -> None:
    with FileLog(tmp_path / "log") as log:
        log.create_topic("wide", partitions=PARTITIONS)
        for acks in ("written", "synced"):
            with log.producer(acks=acks) as producer:
                for partition in range(PARTITIONS):
                    producer.send("wide", acks, partition=partition)
        assert open_files(tmp_path) < 100
        with log.consumer("wide") as consumer:
            found = [record.partition for record in consumer.poll(max_records=10 * PARTITIONS)]
        assert sorted(found) == sorted([*range(PARTITIONS)] * 2)
        assert open_files(tmp_path) < 100
    assert open_files(tmp_path) == 0


def test_many_readers_share_the_files_they_keep_open(tmp_path: Path) -> None:
    with FileLog(tmp_path / "log") as log:
        log.create_topic("wide", partitions=40)
        with log.producer(acks="written") as producer:
            for partition in range(40):
                producer.send("wide", "x", partition=partition)
        consumers = [log.consumer("wide") for _ in range(10)]
        for consumer in consumers:
            assert len(consumer.poll()) == 40
        assert open_files(tmp_path) < 100


def test_segments_that_are_rolled_are_closed(tmp_path: Path) -> None:
    with FileLog(tmp_path / "log") as log:
        log.create_topic("t", settings={"segment_bytes": "1KiB"})
        with log.producer(acks="written") as producer:
            for _ in range(150):
                producer.send("t", "x" * 1_000).wait()
        assert open_files(tmp_path) < 100


def test_a_file_that_two_have_open_at_once_is_kept_once() -> None:
    class Opened:
        open = 0

        def __init__(self) -> None:
            Opened.open += 1

        def close(self) -> None:
            Opened.open -= 1

    disk = Disk()
    with disk.lent("a", Opened), disk.lent("a", Opened):
        assert Opened.open == 2
    assert Opened.open == 1
    disk.close()
    assert Opened.open == 0
