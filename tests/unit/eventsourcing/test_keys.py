"""Key stores: a key for each subject, and nothing left of it once it is forgotten."""

from __future__ import annotations

import base64
import random
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

import headrace.eventsourcing as es
from headrace.clock import VirtualClock
from headrace.errors import (
    InvalidSetting,
    KeyStoreError,
    LogBusy,
    SubjectForgotten,
    UnknownSubject,
    UnreadableEvent,
)
from headrace.eventsourcing import keys as keys_module
from headrace.eventsourcing import sealing

PLACE = ("event", "customer/c-7", "1", "customer-opened", "name")


def raw_keys(path: Path) -> dict[str, bytes]:
    """The bytes of all keys, as SQLite has them."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {str(name): bytes(key) for name, key in db.execute("SELECT * FROM key")}
    finally:
        db.close()


def files_with(folder: Path, wanted: bytes) -> list[str]:
    """The files below a folder in which bytes are."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and wanted in path.read_bytes()
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "people.db"


def test_a_sealed_text_opens_with_its_key_at_its_place(path: Path) -> None:
    with es.KeyStore(path) as keys:
        sealed = keys.seal("customer/c-7", "Jane Dœ", PLACE)
        assert "Jane" not in sealed
        assert keys.open(sealed, PLACE) == "Jane Dœ"
        assert keys.open(sealed) == "Jane Dœ"
        assert sealed != keys.seal("customer/c-7", "Jane Dœ", PLACE)
    with es.KeyStore(path) as again:
        assert again.open(sealed, PLACE) == "Jane Dœ"


@pytest.mark.parametrize("part", range(len(PLACE)))
def test_a_sealed_text_opens_nowhere_else(path: Path, part: int) -> None:
    other = (*PLACE[:part], "other", *PLACE[part + 1 :])
    with es.KeyStore(path) as keys:
        sealed = keys.seal("customer/c-7", "Jane", PLACE)
        with pytest.raises(UnreadableEvent, match="moved from another place"):
            keys.open(sealed, other)


def test_a_sealed_text_cannot_be_given_to_another_subject_or_place(path: Path) -> None:
    """Who writes to the log can change all of a value, but cannot authenticate it."""
    with es.KeyStore(path) as keys:
        mine = keys.seal("a", "Jane", PLACE)
        for subject in ("a", "b"):
            other = keys.seal(subject, "Paul", ("elsewhere",))
            with pytest.raises(UnreadableEvent, match="changed, or moved"):
                keys.open(graft(header_of=other, body_of=mine), ("elsewhere",))


def graft(*, header_of: str, body_of: str) -> str:
    """A value of one's subject and place, with the other's text."""
    one, other = sealing.parse(header_of), sealing.parse(body_of)
    made = one.header + other.nonce + other.body
    return sealing.PREFIX + base64.b64encode(made).decode()


@pytest.mark.parametrize("text", ["", "Jane", "sealed:", "sealed:AQ", "sealed:é", "sealed:AgABYQ"])
def test_text_that_is_no_sealed_value_is_refused(path: Path, text: str) -> None:
    with es.KeyStore(path) as keys, pytest.raises(UnreadableEvent, match="declared sealed"):
        keys.open(text)


def test_a_forgotten_subjects_text_is_gone_and_others_stay(path: Path) -> None:
    clock = VirtualClock(datetime(2026, 1, 2, tzinfo=UTC))
    with es.KeyStore(path, clock=clock) as keys:
        mine, theirs = keys.seal("a", "Jane", PLACE), keys.seal("b", "Paul", PLACE)
        done = keys.forget("a")
        assert (done.subject, done.at) == ("a", datetime(2026, 1, 2, tzinfo=UTC))
        assert any("Backups" in one for one in done.beyond)
        assert keys.open_all([(mine, PLACE), (theirs, None)]) == [None, "Paul"]
        assert (keys.subjects(), keys.forgotten()) == (["b"], [done])


def test_no_byte_of_a_forgotten_key_is_left_in_any_file(path: Path) -> None:
    with es.KeyStore(path) as keys:
        keys.seal("a", "Jane", PLACE)
        key = raw_keys(path)["a"]
        assert files_with(path.parent, key) == ["people.db-wal"]
        keys.forget("a")
        assert files_with(path.parent, key) == []
        assert files_with(path.parent, key[:8]) == []


def test_no_byte_of_any_forgotten_key_is_left_however_pages_were_split(path: Path) -> None:
    chance = random.Random(7)
    names = [f"customer/{number}" for number in range(300)]
    with es.KeyStore(path) as keys:
        made: dict[str, bytes] = {}
        for name in chance.sample(names, len(names)):
            keys.seal(name, "Jane", PLACE)
        made = raw_keys(path)
        gone = chance.sample(names, 100)
        for name in gone:
            keys.forget(name)
    there = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert [name for name in names if made[name] in there] == sorted(
        set(names) - set(gone), key=names.index
    )
    assert [name for name in gone if made[name][:8] in there] == []


def test_a_store_that_is_open_elsewhere_sees_at_once_that_a_key_is_gone(path: Path) -> None:
    with es.KeyStore(path) as one, es.KeyStore(path) as other:
        sealed = one.seal("a", "Jane", PLACE)
        assert other.open(sealed) == "Jane"
        one.forget("a")
        assert other.open(sealed) is None
        with pytest.raises(SubjectForgotten):
            other.seal("a", "Jane", PLACE)


def test_a_reader_that_holds_the_wal_delays_forget_and_it_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "_PATIENCE", 0.05)
    with es.KeyStore(path) as keys:
        keys.seal("a", "Jane", PLACE)
        key = raw_keys(path)["a"]
        reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("BEGIN; SELECT count(*) FROM key")
        with pytest.raises(LogBusy):
            keys.forget("a")
        reader.close()
        # It is forgotten already. What is left to do is to empty the WAL.
        assert [one.subject for one in keys.forgotten()] == ["a"]
        keys.forget("a")
        assert files_with(path.parent, key) == []


def test_a_subject_without_a_key_cannot_be_forgotten(path: Path) -> None:
    """A misspelt subject must not look like one that is gone."""
    with es.KeyStore(path) as keys, pytest.raises(UnknownSubject, match="custmer/c-7"):
        keys.forget("custmer/c-7")


def test_the_wrong_key_store_is_an_error_and_not_a_forgotten_subject(tmp_path: Path) -> None:
    with es.KeyStore(tmp_path / "one") as one, es.KeyStore(tmp_path / "other") as other:
        sealed = one.seal("a", "Jane", PLACE)
        with pytest.raises(KeyStoreError, match="never had a key of 'a'"):
            other.open(sealed)
        other.seal("a", "Paul", PLACE)
        with pytest.raises(UnreadableEvent, match="changed, or moved"):
            other.open(sealed)


def test_only_its_owner_can_read_a_key_store(path: Path) -> None:
    with es.KeyStore(path) as keys:
        keys.seal("a", "Jane", PLACE)
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {0o600}
    path.chmod(0o640)
    with pytest.raises(KeyStoreError, match="mode is 640"):
        es.KeyStore(path)


def test_a_key_store_is_not_in_the_logs_folder(tmp_path: Path) -> None:
    with es.KeyStore(tmp_path / "log" / "keys" / "people.db") as keys:
        keys.check_apart(tmp_path / "logs")
        with pytest.raises(InvalidSetting, match="is in the log's folder"):
            keys.check_apart(tmp_path / "log")


def test_another_database_is_no_key_store(path: Path) -> None:
    path.parent.mkdir()
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE something (a)")
    db.close()
    path.chmod(0o600)
    with pytest.raises(KeyStoreError, match="is no key store"):
        es.KeyStore(path)


def test_hidden_tags_are_equal_where_the_tags_are(path: Path, tmp_path: Path) -> None:
    with es.KeyStore(path) as keys, es.KeyStore(tmp_path / "other") as other:
        hidden = keys.hide("email:jane@example.com")
        assert hidden.startswith("email:") and "jane" not in hidden
        assert hidden == keys.hide("email:jane@example.com")
        assert hidden != keys.hide("email:paul@example.com")
        assert hidden != other.hide("email:jane@example.com")
    with es.KeyStore(path) as again:
        assert hidden == again.hide("email:jane@example.com")


def test_threads_and_processes_make_one_key_for_a_subject(path: Path) -> None:
    program = (
        "import sys, headrace.eventsourcing as es\n"
        f"keys = es.KeyStore({str(path)!r})\n"
        "print(*[keys.seal(f's{n}', 'x', ('p',)) for n in range(30)])\n"
    )
    with es.KeyStore(path) as keys:
        running = [
            subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        sealed = [one.communicate()[0].split() for one in running]
        assert [len(one) for one in sealed] == [30] * 3
        assert {keys.open(text) for one in sealed for text in one} == {"x"}
