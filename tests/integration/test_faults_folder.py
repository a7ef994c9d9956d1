"""A folder that is not a log, or a log of an unknown format."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from headrace.errors import (
    CorruptCatalog,
    HeadraceError,
    LogError,
    NewerFormat,
    NotALog,
    OlderFormat,
)
from headrace.log.file.catalog import FILE_NAME, FORMAT
from headrace.log.file.checksums import checked_vfs
from headrace.log.file.log import FileLog
from headrace.log.file.tables import OLDEST


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed log with a few records."""
    with FileLog(tmp_path / "log") as log:
        log.create_topic("clicks", partitions=3)
        write(log, 20)
    return tmp_path / "log"


def write(log: FileLog, count: int) -> None:
    with log.producer() as producer:
        for number in range(count):
            producer.send("clicks", str(number))
            producer.flush()


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_log_of_a_newer_format_is_refused_and_not_touched(folder: Path) -> None:
    catalog = apsw.Connection(str(folder / FILE_NAME), vfs=checked_vfs())
    catalog.execute(f"PRAGMA user_version={FORMAT + 1}")
    catalog.close()
    before = snapshot(folder)
    with pytest.raises(NewerFormat, match=f"format {FORMAT + 1}") as caught:
        FileLog(folder)
    assert caught.value.details["format"] == FORMAT + 1
    gc.collect()
    assert snapshot(folder) == before


def test_a_log_of_an_unreleased_older_format_is_refused_and_not_touched(folder: Path) -> None:
    catalog = apsw.Connection(str(folder / FILE_NAME), vfs=checked_vfs())
    catalog.execute(f"PRAGMA user_version={OLDEST - 1}")
    catalog.close()
    before = snapshot(folder)
    with pytest.raises(OlderFormat, match=f"format {OLDEST - 1}"):
        FileLog(folder)
    gc.collect()
    assert snapshot(folder) == before


@pytest.mark.parametrize("version", [0, 1, 7])
def test_a_database_of_something_else_is_refused_and_not_touched(
    tmp_path: Path, version: int
) -> None:
    other = apsw.Connection(str(tmp_path / FILE_NAME))
    other.execute(f"CREATE TABLE recipes (name); PRAGMA user_version={version}")
    other.close()
    before = snapshot(tmp_path)
    with pytest.raises(NotALog, match="not the catalog of a log"):
        FileLog(tmp_path)
    gc.collect()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\0" + b"\xff" * 8176])
def test_a_catalog_that_is_garbage_is_damage_and_is_not_touched(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(CorruptCatalog):
        FileLog(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == content


def test_a_damaged_catalog_is_damage_wherever_it_is_noticed(folder: Path) -> None:
    path = folder / FILE_NAME
    whole = path.read_bytes()
    calls: list[Callable[[FileLog], object]] = [
        lambda log: log.topics(),
        lambda log: log.topic("clicks"),
        lambda log: list(log.read("clicks")),
        lambda log: log.groups(),
        lambda log: log.commits("clicks", 0, 10),
        lambda log: log.consumer("clicks").poll(),
        lambda log: log.consumer("clicks", group="readers"),
        lambda log: log.create_topic("more"),
        lambda log: log.upkeep(),
        lambda log: write(log, 5),
    ]
    kinds = set()
    for page in range(1, len(whole) // 4096):
        for call in calls:
            for left in folder.glob(f"{FILE_NAME}-*"):
                left.unlink()
            path.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
            try:
                with FileLog(folder) as log:
                    call(log)
            except HeadraceError as error:
                kinds.add(type(error))
    assert CorruptCatalog in kinds
    assert kinds <= {CorruptCatalog, LogError}


@pytest.mark.parametrize(
    "damage",
    [
        """UPDATE topic SET settings = '{"retention'""",
        """UPDATE topic SET settings = '{"retention": "7 moons"}'""",
        """UPDATE topic SET settings = '{"no_such": "1"}'""",
        "UPDATE topic SET columns = 'id strong'",
    ],
)
def test_a_topic_that_the_catalog_cannot_spell_is_damage(folder: Path, damage: str) -> None:
    catalog = apsw.Connection(str(folder / FILE_NAME), vfs=checked_vfs())
    catalog.execute(damage)
    catalog.close()
    with FileLog(folder) as log:
        for call in (log.topics, lambda: log.topic("clicks"), lambda: list(log.read("clicks"))):
            with pytest.raises(CorruptCatalog, match="clicks"):
                call()


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("not a folder")
    with pytest.raises(NotALog, match="file"):
        FileLog(tmp_path / "log")
    with pytest.raises(LogError, match="log/below"):
        FileLog(tmp_path / "log" / "below")
    assert (tmp_path / "log").read_text() == "not a folder"


def test_a_folder_of_other_things_can_hold_a_log_and_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep me")
    with FileLog(tmp_path) as log:
        log.create_topic("clicks")
    assert (tmp_path / "notes.txt").read_text() == "keep me"
