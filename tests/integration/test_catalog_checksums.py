"""A flipped bit in the catalog never changes an answer in silence."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from headrace.clock import VirtualClock, to_datetime
from headrace.errors import CorruptCatalog, LogBusy, LogError
from headrace.log.file import catalog as catalog_module
from headrace.log.file import checking as checking_module
from headrace.log.file.catalog import FILE_NAME
from headrace.log.file.checking import check_log, renew_checksums
from headrace.log.file.checksums import checked_vfs, has_checksums
from headrace.log.file.log import FileLog
from headrace.log.file.storage import SEGMENTS

NOW = 1_700_000_000_000_000

pytestmark = pytest.mark.skipif(checked_vfs() is None, reason="apsw has no checksum VFS here")


def fill(log: FileLog, clock: VirtualClock) -> None:
    log.create_topic("events", schema="id long, at timestamp", key="id", event_time="at")
    log.create_topic("table", partitions=3, settings={"cleanup": "compact"})
    with log.producer(id="writer", acks="written") as producer:
        for number in range(60):
            clock.advance(timedelta(seconds=7))
            producer.send("events", {"id": number, "at": to_datetime(clock.now() - 10**7)}).wait()
            producer.send("table", f"value {number}", key=str(number % 7)).wait()
            if number % 5 == 0:
                log.advance("events", to_datetime(clock.now()))
    with log.consumer("events", group="readers") as consumer:
        consumer.poll(max_records=20)
        consumer.commit()


def answers(folder: Path) -> Any:
    """All answers that the log can give."""
    with FileLog(folder, clock=VirtualClock(NOW), create=False) as log:
        return (
            [log.topic(t.name) for t in log.topics()],
            log.commits("events", 0, 1_000),
            [log.frontier("events", number) for number in range(log.head() + 1)],
            [log.commit_time(number) for number in range(1, log.head() + 1)],
            [r for t in ("events", "table") for b in log.read(t) for r in b.records()],
            log.group("readers"),
        )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    clock = VirtualClock(NOW)
    with FileLog(tmp_path / "log", clock=clock) as log:
        fill(log, clock)
    return tmp_path / "log"


def flip(data: bytes, choose: random.Random) -> bytes:
    changed = bytearray(data)
    changed[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    return bytes(changed)


def flips(folder: Path, name: str, count: int) -> int:
    """Flip one bit at a time; returns the number of flips that were detected.

    About half of them are: this small catalog has many pages that no answer needs.
    """
    right = answers(folder)
    kept = {path: path.read_bytes() for path in folder.glob(f"{FILE_NAME}*")}
    choose = random.Random(15)
    found = 0
    for _ in range(count):
        for path in folder.glob(f"{FILE_NAME}*"):
            path.unlink()
        for path, data in kept.items():
            path.write_bytes(flip(data, choose) if path.name == name else data)
        try:
            assert answers(folder) == right
        except CorruptCatalog:
            found += 1
    print(f"\n{count} bits flipped in {name}: {found} times an error, else the right answers")
    return found


def test_a_flipped_bit_in_the_catalog_is_an_error_or_changes_no_answer(folder: Path) -> None:
    assert flips(folder, FILE_NAME, 40) > 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_none_of_a_thousand_flipped_bits_changes_an_answer_in_silence(folder: Path) -> None:
    assert flips(folder, FILE_NAME, 1_000) > 250


def test_every_page_of_a_catalog_is_checked(folder: Path) -> None:
    data = (folder / FILE_NAME).read_bytes()
    assert data[20] == 8
    found = unused = 0
    for page in range(0, len(data), 4096):
        (folder / FILE_NAME).write_bytes(
            data[: page + 3000] + bytes([data[page + 3000] ^ 1]) + data[page + 3001 :]
        )
        db = apsw.Connection(str(folder / FILE_NAME), vfs=checked_vfs())
        try:
            found += db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]
            unused = db.execute("PRAGMA freelist_count").get
        except apsw.IOError:
            found += 1
        db.close()
    assert found == len(data) // 4096 - unused


def test_who_may_only_read_checks_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "_writable", lambda _: False)
    assert flips(folder, FILE_NAME, 40) > 10


def test_a_catalog_without_checksums_gets_them_when_its_format_is_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock(NOW)
    with monkeypatch.context() as patch:
        patch.setattr(catalog_module, "checked_vfs", lambda: None)
        patch.setattr(catalog_module, "FORMAT", 2)
        with FileLog(tmp_path / "log", clock=clock) as log:
            fill(log, clock)
    path = tmp_path / "log" / FILE_NAME
    assert path.read_bytes()[20] == 0
    monkeypatch.setattr(catalog_module, "upgrade", lambda *_: None)
    right = answers(tmp_path / "log")
    assert path.read_bytes()[20] == 8
    assert answers(tmp_path / "log") == right
    db = apsw.Connection(str(path), vfs=checked_vfs())
    assert has_checksums(db)
    assert db.execute("PRAGMA checksum_verification").get == "1"
    assert db.execute("PRAGMA integrity_check").get == "ok"
    db.close()


def test_without_the_checksum_vfs_a_log_is_made_without_and_one_with_is_not_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "checked_vfs", lambda: None)
    with pytest.raises(LogError, match="has checksums"):
        FileLog(folder)
    with FileLog(tmp_path / "plain") as log:
        log.create_topic("t")
    monkeypatch.undo()
    with FileLog(tmp_path / "plain") as log:
        log.create_topic("u")
        assert [topic.name for topic in log.topics()] == ["t", "u"]


def test_other_databases_of_the_process_are_left_alone() -> None:
    assert checked_vfs() is not None
    assert apsw.vfs_names()[0] != checked_vfs()


@pytest.fixture
def crashed(tmp_path: Path) -> tuple[Path, Any]:
    """A log as a killed process leaves it, with its WAL, and the answers that it can give."""
    clock = VirtualClock(NOW)
    with FileLog(tmp_path / "alive", clock=clock) as log:
        fill(log, clock)
        shutil.copytree(tmp_path / "alive", tmp_path / "log")
    return tmp_path / "log", answers(tmp_path / "alive")


def read_by_another_program(folder: Path, mode: str = "rw") -> None:
    """Read the catalog with an SQLite that knows nothing of checksums."""
    uri = f"{(folder / FILE_NAME).as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True)) as db:
        assert db.execute("SELECT count(*) FROM topic").fetchone() == (2,)


def unheard(done: int, total: int) -> None:
    """Report no progress."""


def test_a_read_only_look_by_another_program_leaves_a_crashed_log_as_it_is(
    crashed: tuple[Path, Any],
) -> None:
    folder, right = crashed
    read_by_another_program(folder, "ro")
    assert answers(folder) == right


def test_a_catalog_that_another_program_checkpointed_is_refused_until_it_is_repaired(
    crashed: tuple[Path, Any],
) -> None:
    folder, right = crashed
    read_by_another_program(folder)
    with pytest.raises(CorruptCatalog, match="does not match its checksum") as refused:
        answers(folder)
    assert "headrace log repair" in str(refused.value.hint)
    before = (folder / FILE_NAME).read_bytes()
    copy, flaws = renew_checksums(folder, unheard)
    assert flaws == []
    assert copy.read_bytes() == before
    assert check_log(folder, unheard) == []
    assert answers(folder) == right
    assert flips(folder, FILE_NAME, 20) > 5  # and its checksums are verified again


def test_a_repair_changes_nothing_if_records_are_damaged(crashed: tuple[Path, Any]) -> None:
    folder, _ = crashed
    read_by_another_program(folder)
    segment = max((folder / SEGMENTS).iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    before = {path.name: path.read_bytes() for path in folder.glob(f"{FILE_NAME}*")}
    _, flaws = renew_checksums(folder, unheard)
    assert ["do not match their checksum" in flaw.problem for flaw in flaws] == [True]
    assert (folder / FILE_NAME).read_bytes() == before[FILE_NAME]


def test_a_log_in_use_is_not_repaired(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking_module, "_PATIENCE", 0.1)
    before = (folder / FILE_NAME).read_bytes()
    with FileLog(folder) as log:
        assert log.topics()
        with pytest.raises(LogBusy):
            renew_checksums(folder, unheard)
    assert (folder / FILE_NAME).read_bytes() == before
