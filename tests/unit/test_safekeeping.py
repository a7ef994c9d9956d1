"""Backup, restore, and the check of a whole log for damage."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from headrace.application.safekeeping import backup as backups
from headrace.application.safekeeping.backup import MANIFEST, backup, copy_checkpoint, restore
from headrace.application.safekeeping.check import check
from headrace.errors import (
    CorruptSegment,
    HeadraceError,
    LogBusy,
    LogError,
    NotALog,
    Unsupported,
    UserError,
)
from headrace.log import Flaw, Log, open_log
from headrace.log.file import copying
from headrace.log.file.checksums import checked_vfs
from headrace.log.file.log import FileLog
from headrace.log.state import Tell
from headrace.plan.position import Position
from headrace.store.sqlite.database import Database

SMALL = {"segment_bytes": 1024}


def quietly(what: str) -> Tell:
    return lambda done, total: None


def meanwhile(act: Callable[[], object]) -> backups.Progress:
    """Call a function once, when the first segment has been copied."""
    acts = iter([act])

    def progress(what: str) -> Tell:
        def tell(done: int, total: int) -> None:
            if what == "copying":
                next(acts, lambda: None)()

        return tell

    return progress


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A log with three segments in one partition."""
    with open_log(f"file:{tmp_path / 'log'}") as log:
        log.create_topic("t", settings=SMALL, key=None)
        append(log, 3)
    return f"file:{tmp_path / 'log'}"


def append(log: Log, commits: int) -> None:
    with log.producer() as producer:
        for _ in range(commits):
            producer.send("t", b"x" * 900)
            producer.flush()


def records(url: str) -> int:
    with open_log(url, create=False) as log:
        return sum(1 for batch in log.read("t") for _ in batch.records())


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "segments").iterdir())


def stored(folder: Path) -> dict[str, bytes]:
    """All files of a folder, except those that SQLite creates to read a database."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


def views(folder: Path, app: str = "shop", reached: int = 3, **law: int) -> Path:
    """The database of an application with a step that has read this many rows."""
    path = folder / "views" / f"{app}.db"
    database = Database(path, app)
    places = json.dumps({"t": {"commit": reached, "offsets": {"0": reached}}})
    terms = {"rows": reached, "pairs": reached, "counted": reached} | law
    with database.writing() as db:
        db.execute(
            "INSERT INTO _headrace_step VALUES ('sums', '', '', '{}', ?, NULL, ?, 0)",
            (places, json.dumps(terms)),
        )
    database.close()
    return path


# Backups


def test_a_backup_is_a_log_and_comes_back_as_one(url: str, tmp_path: Path) -> None:
    views(tmp_path / "log")
    made = backup(url, tmp_path / "backup", quietly)
    assert (made.commit, made.apps, made.left_out) == (3, ("shop",), ())
    assert records(f"file:{tmp_path / 'backup'}") == 3
    restored = restore(tmp_path / "backup", f"file:{tmp_path / 'again'}", quietly)
    assert restored.commit == 3
    assert check(tmp_path / "again", lambda *_: None) == []
    with open_log(f"file:{tmp_path / 'again'}") as log:
        append(log, 1)
        assert log.head() == 4
        assert log.rollbacks() == {1: 4}, "what comes after is another history"
    assert records(f"file:{tmp_path / 'again'}") == 4


def test_a_backup_is_of_one_moment_while_records_are_written(url: str, tmp_path: Path) -> None:
    with open_log(url) as log:
        made = backup(url, tmp_path / "backup", meanwhile(lambda: append(log, 5)))
    assert made.commit == records(f"file:{tmp_path / 'backup'}") == 3
    assert records(url) == 8


def test_what_is_written_after_that_moment_is_not_copied(tmp_path: Path) -> None:
    with open_log(f"file:{tmp_path / 'log'}") as log:
        log.create_topic("t", partitions=2)
        append(log, 2)
        before = [path.stat().st_size for path in segments(tmp_path / "log")]
        backup(log.url, tmp_path / "backup", meanwhile(lambda: append(log, 9)))
    assert [path.stat().st_size for path in segments(tmp_path / "backup")] == before


@pytest.mark.parametrize("database", ["catalog.db", "views/shop.db"])
def test_a_backup_waits_for_whoever_writes(
    url: str, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    views(tmp_path / "log")
    writer = apsw.Connection(str(tmp_path / "log" / database))
    writer.execute("BEGIN IMMEDIATE")
    with monkeypatch.context() as hasty, pytest.raises(LogBusy):
        hasty.setattr(copying, "_PATIENCE", 0.2)
        backup(url, tmp_path / "backup", quietly)
    writer.execute("ROLLBACK")
    writer.close()
    backup(url, tmp_path / "backup", quietly)


def test_the_wal_is_in_a_backup(url: str, tmp_path: Path) -> None:
    with open_log(url) as log:
        append(log, 2)
        assert (tmp_path / "log" / "catalog.db-wal").stat().st_size
        backup(url, tmp_path / "backup", quietly)
        assert records(f"file:{tmp_path / 'backup'}") == 5


def test_a_segment_that_is_deleted_while_it_is_copied_makes_it_begin_again(
    url: str, tmp_path: Path
) -> None:
    with open_log(url) as log:

        def delete() -> None:
            log.alter_topic("t", settings={"retention_bytes": 1})
            log.upkeep()

        made = backup(url, tmp_path / "backup", meanwhile(delete))
        kept = records(url)
    assert made.commit == 3
    assert records(f"file:{tmp_path / 'backup'}") == kept < 3
    assert [p.name for p in segments(tmp_path / "backup")] == [
        p.name for p in segments(tmp_path / "log")
    ]


def test_a_segment_that_is_missing_stops_a_backup(url: str, tmp_path: Path) -> None:
    segments(tmp_path / "log")[1].unlink()
    with pytest.raises(CorruptSegment, match="is missing"):
        backup(url, tmp_path / "backup", quietly)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log"]


def test_tiered_segments_are_local_in_a_backup(url: str, tmp_path: Path) -> None:
    with open_log(url) as log:
        log.alter_topic("t", settings={"tier": str(tmp_path / "tier"), "tier_after": "0s"})
        log.upkeep()
    assert len(segments(tmp_path / "log")) < 3
    backup(url, tmp_path / "backup", quietly)
    shutil.rmtree(tmp_path / "tier")
    shutil.rmtree(tmp_path / "log")
    assert records(f"file:{tmp_path / 'backup'}") == 3


def test_a_backup_removes_nothing_that_the_log_has_noted_as_garbage(
    url: str, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "tier" / "used by somebody"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"x")
    db = apsw.Connection(str(tmp_path / "log" / "catalog.db"), vfs=checked_vfs())
    db.execute("INSERT INTO garbage VALUES (?)", (elsewhere.as_uri(),))
    db.close()
    backup(url, tmp_path / "backup", quietly)
    with open_log(f"file:{tmp_path / 'backup'}") as log:
        log.upkeep()
    assert elsewhere.exists()


def test_what_an_application_has_sent_and_its_note_of_it_are_of_the_same_moment(
    url: str, tmp_path: Path
) -> None:
    """Else a restored application would send again under sequence numbers that the log has."""
    database = Database(tmp_path / "log" / "views" / "shop.db", "shop")
    ended = threading.Event()

    def work() -> None:
        with FileLog(tmp_path / "log") as log, log.producer() as producer:
            while not ended.is_set():
                with database.writing() as db:
                    db.execute("UPDATE _headrace_outbox_end SET sequence = sequence + 1")
                producer.send("t", b"x" * 900)
                producer.flush()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for number in range(5):
            place = tmp_path / f"backup{number}"
            made = backup(url, place, quietly)
            copy = apsw.Connection(str(place / "views" / "shop.db"))
            noted = int(copy.execute("SELECT sequence FROM _headrace_outbox_end").get)
            copy.close()
            assert noted - 1 <= made.commit - 3 <= noted
    finally:
        ended.set()
        worker.join()
        database.close()


@pytest.mark.parametrize("there", ["file", "folder", "log"])
def test_nothing_is_written_over(url: str, tmp_path: Path, there: str) -> None:
    backup(url, tmp_path / "backup", quietly)
    place = tmp_path / "there"
    if there == "file":
        place.write_text("mine")
    elif there == "folder":
        place.mkdir()
        (place / "mine").write_text("mine")
    else:
        open_log(f"file:{place}").close()
    before = place.read_bytes() if place.is_file() else stored(place)
    with pytest.raises(UserError, match="exists and is not empty"):
        backup(url, place, quietly)
    with pytest.raises(UserError, match="exists and is not empty"):
        restore(tmp_path / "backup", f"file:{place}", quietly)
    assert (place.read_bytes() if place.is_file() else stored(place)) == before


def test_an_empty_folder_is_restored_into(url: str, tmp_path: Path) -> None:
    backup(url, tmp_path / "backup", quietly)
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "backup", f"file:{tmp_path / 'empty'}", quietly)
    assert records(f"file:{tmp_path / 'empty'}") == 3


def flip(path: Path, place: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(segments(folder)[1]),
        lambda folder: segments(folder)[1].unlink(),
        lambda folder: flip(folder / "catalog.db", 8000),
        lambda folder: (folder / "views" / "shop.db").unlink(),
        lambda folder: flip(folder / "views" / "shop.db", 5000),
        lambda folder: (folder / MANIFEST).write_text("{"),
    ],
    ids=["segment", "no segment", "catalog", "no views", "views", "manifest"],
)
def test_a_damaged_backup_is_not_restored(
    url: str, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    views(tmp_path / "log")
    backup(url, tmp_path / "backup", quietly)
    damage(tmp_path / "backup")
    with pytest.raises(LogError, match="damaged"):
        restore(tmp_path / "backup", f"file:{tmp_path / 'again'}", quietly)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["backup", "log"]


def test_a_backup_that_somebody_has_looked_at_is_restored(url: str, tmp_path: Path) -> None:
    backup(url, tmp_path / "backup", quietly)
    check(tmp_path / "backup", lambda *_: None)
    restore(tmp_path / "backup", f"file:{tmp_path / 'again'}", quietly)
    assert records(f"file:{tmp_path / 'again'}") == 3


def test_only_a_backup_is_restored(url: str, tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="There is no backup in"):
        restore(tmp_path / "log", f"file:{tmp_path / 'again'}", quietly)


@pytest.mark.parametrize("act", [backup, lambda url, place, how: restore(place, url, how)])
def test_a_log_on_kafka_is_not_backed_up_here(
    tmp_path: Path, act: Callable[[str, Path, Any], object]
) -> None:
    with pytest.raises(Unsupported, match="Only a log in a folder"):
        act("kafka://127.0.0.1:1", tmp_path / "backup", quietly)


def test_a_copy_of_what_is_private_is_private(url: str, tmp_path: Path) -> None:
    (tmp_path / "log").chmod(0o700)
    seen: list[int] = []

    def progress(what: str) -> Tell:
        return lambda *_: seen.extend(p.stat().st_mode & 0o77 for p in tmp_path.glob(".*"))

    for mode in (0o700, 0o750):
        (tmp_path / "log").chmod(mode)
        backup(url, tmp_path / f"backup{mode}", progress)
        restore(tmp_path / f"backup{mode}", f"file:{tmp_path / f'again{mode}'}", progress)
        for made in (f"backup{mode}", f"again{mode}"):
            assert (tmp_path / made).stat().st_mode & 0o777 == mode
    assert seen and not any(seen)


# Checkpoints


def end(offset: int) -> dict[str, Position]:
    return {"t": Position(offset, (offset,))}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Spark's checkpoint after six batches, the last of which is still running."""
    folder = tmp_path / "checkpoint"
    for batch in range(6):
        place = {"topic": "t", **end(batch)["t"].to_json()}
        for kind, text in {"offsets": f"v1\n{{}}\n{json.dumps(place)}", "commits": "v1"}.items():
            (folder / kind).mkdir(parents=True, exist_ok=True)
            (folder / kind / str(batch)).write_text(text)
        (folder / "state" / "0" / "0").mkdir(parents=True, exist_ok=True)
        (folder / "state" / "0" / "0" / f"{batch + 1}.delta").write_text("")
    (folder / "commits" / "5").unlink()
    (folder / "offsets" / ".6.tmp").write_text("")
    (folder / "headrace.json").write_text("{}")
    return folder


def test_a_checkpoint_is_copied_as_it_was_before_the_last_batch_that_is_stored(
    checkpoint: Path, tmp_path: Path
) -> None:
    assert copy_checkpoint(checkpoint, tmp_path / "copy", end(3))
    assert set(stored(tmp_path / "copy")) == {
        *(f"offsets/{n}" for n in range(4)),
        *(f"commits/{n}" for n in range(3)),
        *(f"state/0/0/{n}.delta" for n in range(1, 4)),
        "headrace.json",
    }


def test_a_checkpoint_that_does_not_fit_what_is_stored_is_left_out(
    checkpoint: Path, tmp_path: Path
) -> None:
    assert not copy_checkpoint(checkpoint, tmp_path / "copy", end(7))
    (checkpoint / "state" / "0" / "0" / "3.delta").unlink()
    assert not copy_checkpoint(checkpoint, tmp_path / "copy", end(3))
    assert not (tmp_path / "copy").exists()


# Checking everything


def found(folder: Path) -> list[Flaw]:
    return check(folder, lambda *_: None)


def test_a_whole_log_has_no_flaw_and_is_not_changed(url: str, tmp_path: Path) -> None:
    views(tmp_path / "log")
    before = stored(tmp_path / "log")
    progress: list[tuple[int, int]] = []
    assert check(tmp_path / "log", lambda done, total: progress.append((done, total))) == []
    assert stored(tmp_path / "log") == before
    assert len(progress) == 3 and progress[-1][0] == progress[-1][1] > 0


def test_a_log_in_use_is_checked(url: str, tmp_path: Path) -> None:
    with open_log(url) as log:
        append(log, 1)
        assert found(tmp_path / "log") == []


def edit(path: Path, sql: str) -> None:
    db = apsw.Connection(str(path), vfs=checked_vfs())
    db.execute(sql)
    db.close()


def catalog(sql: str) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "catalog.db", sql)


def root_page(folder: Path, name: str) -> int:
    db = apsw.Connection(str(folder / "catalog.db"))
    page = int(db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).get)
    db.close()
    return page


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped": (lambda f: flip(segments(f)[1]), "offsets 1 to 1 do not match their checksum"),
    "header": (lambda f: flip(segments(f)[1], 40), "its header is damaged"),
    "cut": (
        lambda f: segments(f)[2].write_bytes(segments(f)[2].read_bytes()[:-9]),
        "it is cut off: offsets 2 to 2 are missing",
    ),
    "removed": (lambda f: segments(f)[0].unlink(), "it cannot be opened: No such file"),
    "not a database": (lambda f: (f / "catalog.db").write_bytes(b"x" * 9999), "is damaged"),
    "page": (
        lambda f: flip(f / "catalog.db", 4096 * root_page(f, "commits_by_time") - 1),
        "does not match its checksum",
    ),
    "index": (
        catalog(
            "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql = replace(sql, '(time)', "
            "'(sequence)') WHERE name = 'commits_by_time'"
        ),
        "missing from index",
    ),
    "chunk": (catalog("DELETE FROM chunk WHERE first = 1"), "missing or duplicate offsets: 1"),
    "last chunk": (catalog("DELETE FROM chunk WHERE first = 2"), "without their last records: 1"),
    "head": (catalog("UPDATE head SET number = 2"), "a commit after the last one: 1"),
    "segment": (catalog("DELETE FROM segment WHERE id = 1"), "records in a missing segment: 1"),
    "length": (catalog("UPDATE segment SET length = 9"), "beyond the end of their segment: 3"),
    "end": (catalog("UPDATE partition SET end = 2"), "records outside their partition: 1"),
    "topic": (catalog("DELETE FROM topic"), "partitions without a topic: 1"),
    "group": (catalog("INSERT INTO group_offset VALUES (1, 1, 0, 9)"), "offsets beyond the end: 1"),
    "older": (
        catalog("DELETE FROM commits; DELETE FROM chunk; DELETE FROM segment; UPDATE head SET "
                "number = 0; UPDATE partition SET end = 0, segment = NULL"),
        "it ends with commit 0, but commit 3 was synced",
    ),
    "views": (lambda f: flip(views(f), 4096), "Tree|malformed"),
    "no views": (lambda f: views(f).write_bytes(b"x" * 9999), "file is not a database"),
    "law": (lambda f: views(f, counted=2), "step 'sums' cannot account for every row"),
    "ahead": (lambda f: views(f, reached=4), "the log is older than the view"),
    "outbox": (
        lambda f: edit(views(f), "INSERT INTO _headrace_outbox VALUES (0, 't', x'')"),
        "its outbox holds entries after its end",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_what_helps_is_said(url: str, tmp_path: Path, name: str) -> None:
    damage, problem = DAMAGE[name]
    damage(tmp_path / "log")
    flaws = [flaw for flaw in found(tmp_path / "log") if not flaw.harmless]
    assert any(re.search(problem, flaw.problem) for flaw in flaws), flaws
    again = name in ("views", "no views", "law", "ahead", "outbox")
    assert ("Recompute it" in flaws[-1].remedy) == again
    assert ("restore the log from a backup" in flaws[-1].remedy) != again


def test_a_file_that_nothing_refers_to_does_no_harm(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "log" / "segments"
    (folder / "000001-00000-0000000002.arrows").rename(folder / "000009-00000-0000000002.arrows")
    (folder / "000001-00000-0000000077.arrows").touch()  # a writer may be about to use it
    shutil.copy(
        folder / "000009-00000-0000000002.arrows", folder / "000001-00000-0000000002.arrows"
    )
    (flaw,) = found(tmp_path / "log")
    assert (flaw.what, flaw.harmless) == ("000009-00000-0000000002.arrows", True)


def test_what_is_deleted_while_it_is_checked_is_no_damage(url: str, tmp_path: Path) -> None:
    with open_log(url) as log:

        def delete(done: int, total: int) -> None:
            log.alter_topic("t", settings={"retention_bytes": 1})
            log.upkeep()

        assert check(tmp_path / "log", delete) == []
    assert len(segments(tmp_path / "log")) < 3


def test_a_folder_without_a_log_cannot_be_checked(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="There is no log in"):
        found(tmp_path)


def test_retention_keeps_a_log_whole(url: str, tmp_path: Path) -> None:
    with open_log(url) as log:
        log.alter_topic("t", settings={"retention_bytes": 1})
        log.upkeep()
    assert found(tmp_path / "log") == []


def test_compaction_keeps_a_log_whole(tmp_path: Path) -> None:
    with open_log(f"file:{tmp_path / 'log'}") as log:
        log.create_topic("t", settings={**SMALL, "cleanup": "compact"})
        with log.producer(linger=timedelta(0)) as producer:
            for number in range(6):
                producer.send("t", b"x" * 900, key=b"%d" % (number % 2))
                producer.flush()
        log.compact("t")
    assert found(tmp_path / "log") == []


def test_offsets_that_compaction_has_left_out_are_no_damage(url: str, tmp_path: Path) -> None:
    edit(tmp_path / "log" / "catalog.db", "DELETE FROM chunk WHERE first = 1")
    edit(tmp_path / "log" / "catalog.db", "UPDATE partition SET gaps = 1")
    assert found(tmp_path / "log") == []
