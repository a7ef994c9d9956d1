"""Check a log for damage by reading all of it once, and renew the checksums of its catalog.

The check changes nothing, and the log may be in use. A file that another process compacted or
deleted meanwhile is not damage.

SQLite's checksums are only in the catalog's file, not in its WAL. So a program without the checksum
VFS that moves the WAL into that file, as any SQLite does with the WAL of a killed process, leaves
sound pages with wrong checksums. `renew_checksums` accepts them after checking everything else.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw

from headrace.errors import CorruptCatalog, LogError, NewerFormat, NotALog, OlderFormat
from headrace.log.file import storage
from headrace.log.file.catalog import APPLICATION, FILE_NAME, FORMAT, failures, many, one
from headrace.log.file.checksums import checked_vfs
from headrace.log.file.disk import Disk
from headrace.log.file.high_water import noted_commit
from headrace.log.file.layout import Checksum, header
from headrace.log.file.mark_check import mark_flaws
from headrace.log.file.storage import SEGMENTS, segment_file, segment_path
from headrace.log.state import Flaw, Tell
from headrace.sqlite import Link, connect

_RESTORE = "Nothing can recreate it: restore the log from a backup"
_RENEW = f"{_RESTORE}. If another SQLite program opened it after a crash: headrace log repair"
_PATIENCE = 30.0

_BROKEN_RULES = {
    "a commit after the last one": "SELECT count(*) FROM commits WHERE number > "
    "(SELECT number FROM head)",
    "records of commits after the last one": "SELECT count(*) FROM chunk WHERE number > "
    "(SELECT number FROM head)",
    "records in a missing segment": "SELECT count(*) FROM chunk WHERE segment NOT IN "
    "(SELECT id FROM segment)",
    "records beyond the end of their segment": "SELECT count(*) FROM chunk c JOIN segment s "
    "ON s.id = c.segment WHERE c.position + c.length > s.length",
    "records outside their partition": "SELECT count(*) FROM chunk c LEFT JOIN partition p "
    "USING (topic, partition) WHERE p.end IS NULL OR c.end > p.end OR c.end <= c.first",
    "partitions without a topic": "SELECT count(*) FROM partition WHERE topic NOT IN "
    "(SELECT id FROM topic)",
    "group offsets beyond the end": "SELECT count(*) FROM group_offset g JOIN partition p "
    "USING (topic, partition) WHERE g.offset > p.end",
    "missing or duplicate offsets": "SELECT count(*) FROM (SELECT c.first, p.gaps, lag(c.end) "
    "OVER (PARTITION BY topic, partition ORDER BY c.first) AS before FROM chunk c "
    "JOIN partition p USING (topic, partition)) "
    "WHERE first < before OR (first > before AND NOT gaps)",
    "marks of no topic": "SELECT count(*) FROM mark WHERE topic NOT IN (SELECT id FROM topic)",
    "marks of no record": "SELECT count(*) FROM mark m WHERE m.number IS NOT (SELECT c.number "
    "FROM chunk c WHERE c.topic = m.topic AND c.partition = m.partition AND c.first <= m.offset "
    "AND c.end > m.offset ORDER BY c.first DESC LIMIT 1)",
    "partitions without their last records": "SELECT count(*) FROM partition p WHERE NOT gaps "
    "AND first < end AND end != (SELECT max(c.end) FROM chunk c WHERE c.topic = p.topic "
    "AND c.partition = p.partition)",
}
"""Queries that count violations of the catalog's invariants."""


def check_log(folder: Path, tell: Tell) -> list[Flaw]:
    """The flaws of a log; none if it is intact. `tell` reports progress."""
    try:
        return _flaws(folder, tell)
    except CorruptCatalog as error:
        return [Flaw(FILE_NAME, error.message, _RENEW)]


def renew_checksums(folder: Path, tell: Tell) -> tuple[Path, list[Flaw]]:
    """Write the catalog's checksums anew if nothing else is wrong with the log.

    Returns a copy of the catalog as it was, and the flaws; with any that is not harmless, nothing
    was changed. No other process may use the log.
    """
    path = folder / FILE_NAME
    vfs = checked_vfs()
    if vfs is None:
        raise LogError(
            "This installation of apsw has no checksum VFS",
            hint="Install apsw from its wheel: pip install --only-binary apsw apsw",
        )
    copy = _unused_name(path)
    with failures(path, _PATIENCE).translated():
        flaws = _flaws(folder, tell, verified=False)
        if any(not flaw.harmless for flaw in flaws):
            return path, flaws
        with contextlib.closing(connect(str(path), _PATIENCE, vfs=vfs)) as db:
            _ignore_checksums(db)
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA locking_mode=EXCLUSIVE")
            db.execute("BEGIN IMMEDIATE; COMMIT")  # takes the lock, and waits for it
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            shutil.copyfile(path, copy)
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return copy, flaws


def _unused_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.before-repair-{n}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())


def _ignore_checksums(db: apsw.Connection) -> None:
    """Read pages whatever their checksum is; what is written gets a right one all the same."""
    db.execute("PRAGMA checksum_verification=OFF")


def _flaws(folder: Path, tell: Tell, *, verified: bool = True) -> list[Flaw]:
    with _snapshot(folder, verified=verified) as db:
        found = [Flaw(FILE_NAME, text, _RESTORE) for text in _broken_rules(db)]
        if found:
            return found  # such a catalog is no guide to the segments
        if (noted := noted_commit(folder)) > _head(db) and noted > _newest(folder, verified):
            problem = f"it ends with commit {_head(db)}, but commit {noted} was synced"
            found.append(Flaw(FILE_NAME, problem, _RESTORE))
        found += _segments(db, folder, tell, verified)
        if not found:  # damaged records have no values to compare with the marks
            found += mark_flaws(db, folder)
        return [*found, *_orphans(db, folder)]


def _newest(folder: Path, verified: bool) -> int:
    """The last commit of the log by now."""
    with _snapshot(folder, verified=verified) as db:
        return _head(db)


def log_ends(folder: Path) -> tuple[int, dict[str, dict[int, int]]]:
    """The last commit of a log, and the end offsets of its partitions by topic."""
    ends: dict[str, dict[int, int]] = {}
    with _snapshot(folder) as db:
        for topic, partition, end in many(
            db, "SELECT t.name, p.partition, p.end FROM partition p JOIN topic t ON t.id = p.topic"
        ):
            ends.setdefault(topic, {})[partition] = end
        return _head(db), ends


def _broken_rules(db: apsw.Connection) -> list[str]:
    """Errors from SQLite's integrity check, or else violated invariants of the log."""
    said = [str(line) for (line,) in many(db, "PRAGMA integrity_check(10)")]
    if said != ["ok"]:
        return said
    counts = {rule: one(db, sql) for rule, sql in _BROKEN_RULES.items()}
    return [f"{rule}: {count[0]:,}" for rule, count in counts.items() if count and count[0]]


def _segments(db: apsw.Connection, folder: Path, tell: Tell, verified: bool) -> Iterator[Flaw]:
    rows = many(
        db,
        "SELECT s.id, t.name, s.topic, s.partition, s.columns, s.sparse, s.length, s.location "
        "FROM segment s LEFT JOIN topic t ON t.id = s.topic ORDER BY s.id",
    )
    done, total = 0, sum(row[6] for row in rows)
    for id, topic, number, partition, columns, sparse, length, location in rows:
        path = segment_path(folder, number, partition, id)
        where = f"{path.name} (topic {topic!r}, partition {partition})"
        for problem in _segment(db, id, path, location, header(columns, sparse).to_pybytes()):
            if _still_there(folder, id, location, verified):
                yield Flaw(where, problem, _RESTORE)
        done += length
        tell(done, total)


def _segment(
    db: apsw.Connection, id: int, path: Path, location: str | None, head: bytes
) -> Iterator[str]:
    """The flaws of a segment: a wrong header, or records that cannot be read."""
    disk = Disk()
    file = segment_file(disk, path, location)
    with contextlib.closing(disk):
        try:
            if Checksum().read(file, 0, len(head)).to_pybytes() != head:
                yield "its header is damaged"
        except OSError as error:
            shown = "" if location is None else f" at {storage.shown(location)}"
            yield f"it cannot be opened{shown}: {error.strerror or type(error).__name__}"
            return
        for position, length, digest, first, end in many(
            db,
            "SELECT position, length, checksum, first, end FROM chunk WHERE segment = ? "
            "ORDER BY position",
            id,
        ):
            checksum = Checksum()
            try:
                read = checksum.read(file, position, length).size
            except OSError as error:
                yield f"offsets {first} to {end - 1} cannot be read: {error.strerror or error}"
                continue
            if read < length:
                yield f"it is cut off: offsets {first} to {end - 1} are missing"
            elif checksum.value != digest:
                yield f"offsets {first} to {end - 1} do not match their checksum"


def _orphans(db: apsw.Connection, folder: Path) -> Iterator[Flaw]:
    """Files that nothing refers to, except the newest, which a writer may be about to use."""
    known = {
        segment_path(folder, topic, partition, id).name
        for id, topic, partition in many(db, "SELECT id, topic, partition FROM segment")
    }
    known |= {str(location) for (location,) in many(db, "SELECT location FROM garbage")}
    highest = one(db, "SELECT seq FROM sqlite_sequence WHERE name = 'segment'") or (0,)
    for path in sorted((folder / SEGMENTS).glob("*.arrows")):
        if path.name not in known and int(path.stem.rpartition("-")[2]) <= highest[0]:
            yield Flaw(path.name, "nothing refers to it", "It can be removed", harmless=True)


def _still_there(folder: Path, segment: int, location: str | None, verified: bool) -> bool:
    """True if the log still has a segment, in the same place."""
    with _snapshot(folder, verified=verified) as db:
        return one(db, "SELECT location FROM segment WHERE id = ?", segment) == (location,)


def _head(db: apsw.Connection) -> int:
    return int((one(db, "SELECT number FROM head") or (0,))[0])


@contextlib.contextmanager
def _snapshot(folder: Path, *, verified: bool = True) -> Iterator[apsw.Connection]:
    """A snapshot of the catalog, on a read-only connection."""
    path = folder / FILE_NAME
    if not path.exists():
        raise NotALog(f"There is no log in {folder}", hint="Name another folder with --log")
    link = Link("The log", lambda: _connected(path, verified), patience=_PATIENCE)
    with failures(path, _PATIENCE).translated(), contextlib.closing(link), link.snapshot() as db:
        _check_format(db, folder)
        yield db


def _connected(path: Path, verified: bool) -> apsw.Connection:
    still = not path.with_name(f"{FILE_NAME}-wal").exists()

    def opened(how: str) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        uri = f"{path.resolve().as_uri()}?{how}"
        db = connect(uri, _PATIENCE, flags=flags, vfs=checked_vfs())
        if not verified:
            _ignore_checksums(db)
        return db

    db = opened("mode=ro")
    try:
        db.execute("SELECT count(*) FROM sqlite_schema")
    except apsw.CantOpenError:
        db.close()
        if not still:
            raise
        # In a read-only folder SQLite can only read a database that does not change.
        return opened("immutable=1")
    return db


def _check_format(db: apsw.Connection, folder: Path) -> None:
    if int(db.execute("PRAGMA application_id").get) != APPLICATION:
        raise NotALog(f"{folder / FILE_NAME} is a database, but not the catalog of a log")
    version = int(db.execute("PRAGMA user_version").get)
    if version != FORMAT:
        kind = NewerFormat if version > FORMAT else OlderFormat
        hint = "Upgrade headrace" if version > FORMAT else "Open it once: headrace topics list"
        raise kind(
            f"The log in {folder} has format {version}; only {FORMAT} can be checked", hint=hint
        )
