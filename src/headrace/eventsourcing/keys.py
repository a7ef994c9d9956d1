"""Keys of subjects: what makes the personal fields of a log that never forgets forgettable.

Each subject, such as a customer, has a key in a SQLite file of its own, apart from the log. What
the key sealed is everywhere: in segments, snapshots, views, backups of the log. Destroying the key
makes all of it unreadable at once.

A sealed value is text that names its subject. It was sealed for one place, such as a field of one
event, and opens nowhere else. A key that is missing without having been destroyed is an error, so
that the wrong key store does not look like one in which everybody was forgotten.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from headrace.clock import Clock, SystemClock, to_datetime
from headrace.closing import Closing
from headrace.errors import (
    InvalidSetting,
    KeyStoreError,
    MissingExtra,
    SubjectForgotten,
    UnknownSubject,
)
from headrace.eventsourcing.forgotten import Forgotten
from headrace.files import private_file
from headrace.sqlite import Failures, Link, connect

_APPLICATION = 0x6872_6B79
_FORMAT = 1
_PATIENCE = 30.0
_REMEMBERED = 100_000
"""Keys that are kept in memory."""

_SCHEMA = """
CREATE TABLE key (subject TEXT PRIMARY KEY, key BLOB NOT NULL) STRICT;
CREATE TABLE forgotten (subject TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE secret (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
"""


class KeyStore(Closing):
    """The keys of subjects, in a SQLite file that only its owner can read.

    Keep it outside of the log's folder, so that no backup of the log has the keys. Back it up too,
    apart from the log and not for longer than a forgotten subject may be readable: without it,
    every personal field is lost. With `create=False` it has to be there.
    """

    def __init__(
        self, path: Path | str, *, create: bool = True, clock: Clock | None = None
    ) -> None:
        self._cipher = _cipher()
        self.path = Path(path).expanduser().resolve()
        self._clock = clock or SystemClock()
        self._failures = Failures(
            self.path,
            f"the key store {self.path}",
            _PATIENCE,
            busy="See which process writes to it, then try again",
            full="Free some space, then try again",
            damaged="Restore it from a backup. Subjects that were forgotten since then have to be "
            "forgotten again",
            corrupt=KeyStoreError,
            other=KeyStoreError,
            read_only=KeyStoreError,
        )
        self._keys: OrderedDict[str, Any] = OrderedDict()
        self._seen: tuple[int, int] | None = None
        self._forgets = 0
        self._link = Link(f"The key store {self.path}", self._connect, patience=_PATIENCE)
        _check_private(self.path, create)
        with self._failures.translated():
            self._link.patiently(lambda db: db.execute("PRAGMA journal_mode=WAL"))
            with self._link.transaction() as db:
                self._prepare(db)

    def seal(self, subject: str, text: str, place: Sequence[str]) -> str:
        """Text as a sealed value, which opens only with the subject's key and at its place.

        Makes the key of a new subject. Raises `SubjectForgotten` for one whose key was destroyed.
        """
        return str(self._cipher.seal(self._key_to_seal(subject), subject, text, place))

    def open(self, sealed: str, place: Sequence[str] | None = None) -> str | None:
        """The text of a sealed value; None if its subject is forgotten.

        `place` is where it was found, if that is known: of an event, a command or a snapshot, not
        of a row of a view.
        """
        return self.open_all([(sealed, place)])[0]

    def open_all(self, sealed: Iterable[tuple[str, Sequence[str] | None]]) -> list[str | None]:
        """The texts of sealed values, each with its place, as `open` returns them."""
        parts = [(self._cipher.parse(text), place) for text, place in sealed]
        keys = self._keys_of({part.subject for part, _ in parts})
        opened: list[str | None] = []
        for part, place in parts:
            key = keys[part.subject]
            opened.append(None if key is None else self._cipher.open(key, part, place))
        return opened

    def hide(self, tag: str) -> str:
        """A tag that says nothing without the key store, and is the same for the same tag."""
        kind, colon, value = tag.partition(":")
        digest = hmac.new(self._secret("tags"), tag.encode(), hashlib.sha256).hexdigest()[:32]
        return f"{kind}:{digest}" if colon and value else digest

    def forget(self, subject: str) -> Forgotten:
        """Destroy a subject's key, for good, and say what that does not reach.

        When it returns, no file of the key store has the key. Forgetting a subject again is
        allowed; `UnknownSubject` is raised for one that never had a key.
        """
        with self._failures.translated():
            with self._link.transaction() as db:
                at = db.execute("SELECT at FROM forgotten WHERE subject = ?", (subject,)).get
                if at is None:
                    db.execute("DELETE FROM key WHERE subject = ?", (subject,))
                    if not db.changes():
                        raise UnknownSubject(
                            f"The key store {self.path} has never had a key of {subject!r}",
                            hint="headrace keys list shows its subjects, such as 'customer/c-7'",
                        )
                    at = self._clock.now()
                    db.execute("INSERT INTO forgotten VALUES (?, ?)", (subject, at))
            self._keys.pop(subject, None)
            self._seen = None
            # Its pages are overwritten, but older ones are in the WAL.
            self._link.patiently(self._empty_wal)
        return Forgotten(subject, to_datetime(int(str(at))))

    def subjects(self) -> list[str]:
        """The subjects that have a key, in order."""
        with self._failures.translated(), self._link as db:
            return [str(one) for (one,) in db.execute("SELECT subject FROM key ORDER BY subject")]

    def forgotten(self) -> list[Forgotten]:
        """The subjects whose keys were destroyed, the first one first."""
        with self._failures.translated(), self._link as db:
            rows = db.execute("SELECT subject, at FROM forgotten ORDER BY at, subject")
            return [Forgotten(str(one), to_datetime(int(str(at)))) for one, at in rows]

    def forgets(self) -> int:
        """The number of forgotten subjects. What was read when there were fewer may be stale."""
        with self._failures.translated(), self._link.snapshot() as db:
            self._refresh(db)
            return self._forgets

    def check_apart(self, folder: Path) -> None:
        """Raise if the file is in a folder, such as a log's."""
        if self.path.is_relative_to(folder.resolve()):
            raise InvalidSetting(
                f"The key store {self.path} is in the log's folder {folder}",
                hint="Keep it elsewhere: a backup of the log would have the keys, and forgetting "
                "would not reach it",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark's workers open it by themselves.
        return partial(KeyStore, create=False), (self.path,)

    def close(self) -> None:
        self._keys.clear()
        self._link.close()

    # Inside

    def _connect(self) -> apsw.Connection:
        db = connect(str(self.path), _PATIENCE)
        # A key is durable before anything is that it sealed, and deleted bytes are overwritten.
        db.execute("PRAGMA synchronous=FULL; PRAGMA secure_delete=ON; PRAGMA temp_store=MEMORY")
        return db

    def _prepare(self, db: apsw.Connection) -> None:
        if not db.execute("SELECT count(*) FROM sqlite_schema").get:
            db.execute(_SCHEMA)
            db.execute(f"PRAGMA application_id={_APPLICATION}; PRAGMA user_version={_FORMAT}")
        found = db.execute("PRAGMA application_id").get, db.execute("PRAGMA user_version").get
        if found != (_APPLICATION, _FORMAT):
            newer = found[0] == _APPLICATION
            raise KeyStoreError(
                f"{self.path} is {'a key store of a newer headrace' if newer else 'no key store'}",
                hint="Upgrade headrace" if newer else "Give the path of a new file, or of a store",
            )

    def _key_to_seal(self, subject: str) -> Any:
        known = self._keys_of({subject}, strict=False)
        if subject in known:
            key = known[subject]
            if key is None:
                raise SubjectForgotten(
                    f"The key of {subject!r} was destroyed, so nothing can be sealed for it",
                    hint="Leave the personal fields of a forgotten subject empty, or give a person "
                    "who has come back a new id",
                )
            return key
        with self._failures.translated(), self._link.transaction() as db:
            # Another process may have made the key meanwhile, or destroyed it.
            db.execute(
                "INSERT OR IGNORE INTO key SELECT ?1, ?2 "
                "WHERE NOT EXISTS (SELECT 1 FROM forgotten WHERE subject = ?1)",
                (subject, secrets.token_bytes(32)),
            )
        return self._key_to_seal(subject)

    def _keys_of(self, subjects: set[str], *, strict: bool = True) -> dict[str, Any]:
        """The keys of subjects; None for those that are forgotten."""
        with self._failures.translated(), self._link.snapshot() as db:
            self._refresh(db)
            found: dict[str, Any] = {}
            for subject in subjects:
                key = self._keys.get(subject)
                if key is None:
                    row = db.execute("SELECT key FROM key WHERE subject = ?", (subject,)).fetchone()
                    if row is not None:
                        key = self._keys[subject] = self._cipher.key(row[0])
                        if len(self._keys) > _REMEMBERED:
                            self._keys.popitem(last=False)
                    elif not db.execute(
                        "SELECT 1 FROM forgotten WHERE subject = ?", (subject,)
                    ).get:
                        if strict:
                            raise KeyStoreError(
                                f"The key store {self.path} has never had a key of {subject!r}, "
                                "and a stored value was sealed with one",
                                hint="Give the key store that the value was written with, or "
                                "restore it from a backup",
                            )
                        continue
                found[subject] = key
            return found

    def _refresh(self, db: apsw.Connection) -> None:
        """Drop the keys in memory if another connection may have destroyed one."""
        seen = self._link.number, int(str(db.execute("PRAGMA data_version").get))
        if seen != self._seen:
            self._keys.clear()
            self._forgets = int(str(db.execute("SELECT count(*) FROM forgotten").get))
            self._seen = seen

    def _secret(self, name: str) -> bytes:
        with self._failures.translated():
            with self._link as db:
                row = db.execute("SELECT value FROM secret WHERE name = ?", (name,)).fetchone()
            if row is None:
                with self._link.transaction() as db:
                    db.execute(
                        "INSERT OR IGNORE INTO secret VALUES (?, ?)",
                        (name, secrets.token_bytes(32)),
                    )
                return self._secret(name)
        return bytes(row[0])

    def _empty_wal(self, db: apsw.Connection) -> None:
        busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() or (1,)
        if busy:
            raise apsw.BusyError("a reader holds the WAL")


def _check_private(path: Path, create: bool) -> None:
    """Create the file for its owner alone, or check that it is."""
    if not create and not path.exists():
        raise KeyStoreError(f"There is no key store {path}", hint="Check the path")
    try:
        mode = private_file(path)
    except OSError as error:
        raise KeyStoreError(
            f"The key store {path} cannot be created: {error.strerror}",
            hint="Check the folder's owner and permissions",
        ) from None
    if mode & 0o077:
        raise KeyStoreError(
            f"Others than its owner can read the key store {path}: its mode is {mode:o}",
            hint=f"chmod 600 {path}, and think about who has read it",
        )


def _cipher() -> Any:
    """The module that seals. `cryptography` is optional, so it is imported here."""
    try:
        return importlib.import_module("headrace.eventsourcing.sealing")
    except ModuleNotFoundError as error:
        if error.name != "cryptography":
            raise
        raise MissingExtra(
            "Personal fields need the package 'cryptography', which is not installed",
            hint="pip install 'headrace[privacy]'",
        ) from None
