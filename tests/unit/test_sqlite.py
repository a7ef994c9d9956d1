"""SQLite files that several processes and threads open, create and close at once."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from headrace import sqlite
from headrace.errors import (
    AlreadyRunning,
    CorruptCatalog,
    CorruptView,
    HeadraceError,
    LogBusy,
    MisusedHandle,
    NotALog,
)
from headrace.log.file import catalog
from headrace.log.file.log import FileLog
from headrace.store.lock import only_one
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.reading import Views
from tests.forking import Child
from tests.waiting import left

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["headrace.log.file.log", "headrace.store.sqlite.database"])

HOLD = """
import sys, apsw
db = apsw.Connection(sys.argv[1])
db.execute(sys.argv[2])
print("held", flush=True); sys.stdin.read()
"""


@contextmanager
def held(path: Path, sql: str) -> Iterator[Callable[[], None]]:
    """Keep another process in the middle of an operation on a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), sql],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"

        def let_go() -> None:
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait(left())

        yield let_go
        if not holder.stdin.closed:
            holder.stdin.close()


def make_log(folder: Path) -> None:
    with FileLog(folder, patience=left()) as log:
        assert log.topics() == []


def make_views(folder: Path) -> None:
    with closing(Database(folder / "app.db", "app")) as database, database.reading() as db:
        assert db.execute("SELECT count(*) FROM _headrace_step").get == 0


MAKERS = [
    pytest.param(make_log, "catalog.db", id="log"),
    pytest.param(make_views, "app.db", id="views"),
]

# Creating a file at once


@pytest.mark.parametrize(("make", "name"), MAKERS)
@pytest.mark.parametrize("lock", ["BEGIN; SELECT * FROM sqlite_schema", "BEGIN EXCLUSIVE"])
def test_whoever_makes_a_file_waits_for_another_who_looks_at_it(
    tmp_path: Path,
    make: Callable[[Path], None],
    name: str,
    lock: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pause = sqlite._gate.pause
    with held(tmp_path / "new" / name, lock) as let_go:

        def waited(seconds: float) -> None:
            let_go()
            pause(seconds)

        monkeypatch.setattr(sqlite._gate, "pause", waited)
        make(tmp_path / "new")


def _make_all(
    make: Callable[[Path], None],
    folder: Path,
    rounds: int,
    together: multiprocessing.synchronize.Barrier,
) -> None:
    for number in range(rounds):
        together.wait(left())
        make(folder / str(number))


@pytest.mark.parametrize("make", [make_log, make_views])
@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_processes_that_make_the_same_file_at_once_all_have_it(
    tmp_path: Path, make: Callable[[Path], None], rounds: int
) -> None:
    together = _context.Barrier(4)
    makers = [
        _context.Process(target=_make_all, args=(make, tmp_path, rounds, together), daemon=True)
        for _ in range(4)
    ]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(left())
    assert [maker.exitcode for maker in makers] == [0] * 4


def test_a_reader_that_may_not_write_is_told_that_a_log_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "catalog.db").touch()
    monkeypatch.setattr(catalog, "_writable", lambda path: False)
    with pytest.raises(NotALog, match="still being created"):
        FileLog(tmp_path)


def test_a_writer_that_waits_in_vain_says_for_how_long_it_has_waited(tmp_path: Path) -> None:
    with FileLog(tmp_path, patience=0.05) as log:
        with (
            held(tmp_path / "catalog.db", "BEGIN IMMEDIATE"),
            pytest.raises(LogBusy, match=r"lock on .* for 0\.05 s"),
        ):
            log.create_topic("t")
        log.create_topic("t")


# Connections


def test_no_more_connections_are_kept_than_a_number_of_threads_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_READERS", 2)
    with FileLog(tmp_path) as log:
        together = threading.Barrier(6)

        def read() -> None:
            for _ in range(3):
                together.wait(left())
                assert log.head() == 0

        threads = [threading.Thread(target=read) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(left())
        log.head()
        mine = [
            c for c in sqlite._gate.connections.values() if c.filename == str(log._catalog.path)
        ]
        assert len(mine) <= 3, "one that writes, and two that read"


def test_a_link_that_is_garbage_leaves_no_connection() -> None:
    def link() -> sqlite.Link:
        return sqlite.Link("Memory", lambda: sqlite.connect(":memory:", 0), patience=0)

    with (dropped := link()):
        number = dropped.number
    assert number in sqlite._gate.connections
    del dropped
    with closing(link()) as another, another:
        assert number not in sqlite._gate.connections


def test_what_is_closed_says_so(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    database = Database(tmp_path / "views" / "app.db", "app")
    views = Views(f"file:{tmp_path}")
    for handle in (log, database, views):
        handle.close()
        handle.close()
    uses: list[Callable[[], object]] = [log.head, log.topics, views.list]
    for use in uses:
        with pytest.raises(MisusedHandle, match=r"(is|are) closed"):
            use()
    with pytest.raises(MisusedHandle, match="is closed"), database.writing():
        pass


def test_a_snapshot_does_not_move_and_its_thread_may_take_it_twice(tmp_path: Path) -> None:
    with FileLog(tmp_path) as log, log._catalog.reading() as db:
        before = db.execute("SELECT count(*) FROM topic").get
        log.create_topic("t")
        with log._catalog.reading() as again:
            assert again is db
            assert again.execute("SELECT count(*) FROM topic").get == before == 0


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (FileLog, CorruptCatalog),
        (lambda folder: Database(folder / "catalog.db", "app"), CorruptView),
    ],
    ids=["log", "views"],
)
def test_a_damaged_file_has_the_error_of_what_it_was_for(
    tmp_path: Path, use: Callable[[Path], object], error: type[HeadraceError]
) -> None:
    (tmp_path / "catalog.db").write_bytes(b"not what SQLite writes" * 1000)
    with pytest.raises(error, match="is damaged"):
        use(tmp_path)


# Other resources that a child must not inherit


def test_a_child_does_not_hold_its_parents_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with only_one(path, "It runs", "Stop it"):

        def work(line: Connection) -> None:
            line.send("up")
            line.recv()

        child = Child(work)
        assert child.hear() == "up"
        with pytest.raises(AlreadyRunning), only_one(path, "It runs", "Stop it"):
            pass
    with only_one(path, "It runs", "Stop it"):
        child.say("end")
    child.end()


ENDS = """
import os, sys
from headrace.forks import at_exit

at_exit(os.write, 1, b"end\\n")
if not (child := os.fork()):
    sys.exit(0)
os.waitpid(child, 0)
"""


def test_what_a_process_does_at_its_end_its_children_do_not() -> None:
    run = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, check=True)
    assert run.stdout == b"end\n"
