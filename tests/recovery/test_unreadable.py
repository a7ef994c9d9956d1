"""Recovery rolls back commits that are proven lost, and no others."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import CorruptSegment, HeadraceError, LogError
from headrace.log.file.disk import Disk, ReadInto
from headrace.log.file.log import FileLog


class Failing(Disk):
    """A disk whose reads fail with a given error."""

    def __init__(self, fails: int | None = None) -> None:
        super().__init__()
        self._fails = fails

    @contextlib.contextmanager
    def reading(self, path: Path) -> Iterator[ReadInto]:
        if self._fails is not None:
            raise OSError(self._fails, os.strerror(self._fails), str(path))
        with super().reading(path) as read_into:
            yield read_into


class NextBoot(Failing):
    """The same disk after a boot."""

    def boot(self) -> str:
        return "another"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with one synced commit, followed by five that were only written."""
    with FileLog(tmp_path / "log") as log:
        log.create_topic("t")
        log.create_topic("u")
        with log.producer() as producer:
            producer.send("t", "synced").wait()
        with log.producer(acks="written") as producer:
            for number in range(5):
                producer.send("t" if number < 3 else "u", str(number)).wait()
    return tmp_path / "log"


def values(log: FileLog) -> list[bytes]:
    return [r.value for topic in "tu" for batch in log.read(topic) for r in batch.records()]


ALL = [b"synced", b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.EIO, errno.ENOMEM])
def test_what_cannot_be_read_after_a_boot_is_an_error_and_nothing_is_taken_back(
    folder: Path, number: int
) -> None:
    for _ in range(2):  # the second open recovers again, because the boot was not stored
        with pytest.raises(LogError, match=r"cannot be read.*Nothing was changed") as caught:
            FileLog(folder, disk=NextBoot(number))
        assert not isinstance(caught.value, CorruptSegment)
    with FileLog(folder, disk=NextBoot()) as log:
        assert values(log) == ALL


def test_a_log_that_was_not_opened_leaves_no_descriptor_behind(folder: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(LogError):
            FileLog(folder, disk=NextBoot(errno.EIO))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_log_whose_folder_cannot_be_made_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    (tmp_path / "segments").write_text("a file in its place")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(LogError, match="segments"):
        FileLog(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def segment(folder: Path, topic: int) -> Path:
    (path,) = (folder / "segments").glob(f"{topic:06d}-*")
    return path


def test_a_missing_file_whose_name_was_never_synced_is_taken_back(folder: Path) -> None:
    segment(folder, 2).unlink()
    with FileLog(folder, disk=NextBoot()) as log:
        assert values(log) == ALL[:4]


def test_a_missing_file_whose_name_was_synced_takes_nothing_back_and_its_readers_are_told(
    folder: Path,
) -> None:
    path = segment(folder, 1)
    whole = path.read_bytes()
    path.unlink()
    with FileLog(folder, disk=NextBoot()) as log:
        with pytest.raises(CorruptSegment, match="missing"):
            values(log)
        path.write_bytes(whole)  # restored from a copy
        assert values(log) == ALL


def test_a_file_that_ends_too_early_is_taken_back_from_there_on(folder: Path) -> None:
    path = segment(folder, 1)
    path.write_bytes(path.read_bytes()[:-1])
    with FileLog(folder, disk=NextBoot()) as log:
        assert values(log) == ALL[:3]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.EIO])
def test_a_segment_that_cannot_be_read_is_not_called_damaged(folder: Path, number: int) -> None:
    with FileLog(folder, disk=Failing(number)) as log:
        with pytest.raises(HeadraceError, match="cannot be read") as caught:
            values(log)
        assert not isinstance(caught.value, CorruptSegment)
