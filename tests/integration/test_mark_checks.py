"""`check_log` compares the marks of an indexed topic with its rows, in both directions."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from headrace.log import check_log, copy_log
from headrace.log.file.checksums import checked_vfs
from headrace.log.file.log import FileLog


def unheard(done: int, total: int) -> None:
    """Nobody is told of the progress."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with an indexed topic, a part of which was compacted."""
    folder = tmp_path / "log"
    with FileLog(folder) as log:
        log.create_topic(
            "facts", partitions=2, schema="id STRING, tags ARRAY<STRING>", key="id",
            settings={"index": "tags", "cleanup": "compact"},
        )  # fmt: skip
        with log.producer() as producer:
            for number in range(20):
                tags = [f"n{number}", "all", "all"] if number % 3 else None
                producer.send("facts", {"id": f"{number % 5}", "tags": tags})
                if number == 10:
                    producer.flush()
                    log.compact("facts")
    return folder


def test_the_marks_of_an_intact_log_are_those_of_its_rows(folder: Path, tmp_path: Path) -> None:
    assert check_log(folder, unheard) == []
    copy = tmp_path / "copy"
    with FileLog(folder):
        copy_log(folder, copy, beside={}, then=lambda: None, tell=unheard)
    assert check_log(copy, unheard) == []


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("DELETE FROM mark WHERE value = 'n19'", "the topic's rows have"),
        ("INSERT INTO mark SELECT topic, 'other', number, partition, offset FROM mark LIMIT 1",
         "the topic's rows have"),
        ("UPDATE mark SET value = 'other' WHERE value = 'n19'", "others than it has"),
        ("UPDATE mark SET number = number + 1", "marks of no record"),
        ("INSERT INTO mark VALUES (1, 'all', 1, 0, 77)", "marks of no record"),
        ("INSERT INTO mark VALUES (9, 'all', 1, 0, 0)", "marks of no topic"),
    ],
)  # fmt: skip
def test_a_mark_that_is_missing_or_wrong_is_found(folder: Path, damage: str, problem: str) -> None:
    db = apsw.Connection(str(folder / "catalog.db"), vfs=checked_vfs())
    db.execute(damage)
    db.close()
    flaws = check_log(folder, unheard)
    assert [flaw for flaw in flaws if problem in flaw.problem], flaws


def test_a_deleted_topic_leaves_no_marks(folder: Path) -> None:
    with FileLog(folder) as log:
        log.delete_topic("facts")
    assert check_log(folder, unheard) == []
