"""Processes that fork while they have logs and views open, in as many ways as there are."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headrace import sqlite
from headrace.errors import MisusedHandle
from headrace.log import open_log
from headrace.log.file.log import FileLog
from headrace.log.interface import Log
from headrace.servers.kafka.state import ClusterState
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.reading import Views
from tests.forking import Child, in_child
from tests.waiting import left

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

LONG = timedelta(hours=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(folder: Path) -> Iterator[FileLog]:
    made = FileLog(folder)
    made.create_topic("t", partitions=2)
    yield made
    made.close()


def append(log: Log, *values: str) -> None:
    """A synced commit for each value."""
    with log.producer() as producer:
        for value in values:
            producer.send("t", value, key=value).wait()


def values(log: Log) -> list[str]:
    return sorted(r.value.decode() for batch in log.read("t") for r in batch.records())


def numbered(name: str, count: int) -> list[str]:
    return [f"{name} {number:03}" for number in range(count)]


# What a child commits


@pytest.mark.parametrize("own", [True, False], ids=["a log of its own", "its parent's log"])
def test_a_parent_that_closes_its_log_takes_nothing_from_a_child(folder: Path, own: bool) -> None:
    parent = FileLog(folder)
    parent.create_topic("t")
    append(parent, *numbered("parent", 2))

    def work(line: Connection) -> list[str]:
        log = FileLog(folder) if own else parent
        log.head()
        line.send("open")
        line.recv()
        append(log, *numbered("child", 20))
        line.send("appended")
        line.recv()
        return values(log)

    child = Child(work)
    assert child.hear() == "open"
    parent.close()
    child.say("closed")
    assert child.hear() == "appended"
    with FileLog(folder) as other:
        assert values(other) == numbered("child", 20) + numbered("parent", 2)
        with other.producer() as producer:
            assert producer.send("t", b"next").wait().acks[0].first == 22
    child.say("go on")
    assert child.end() == [*numbered("child", 20), "next", *numbered("parent", 2)]


@pytest.mark.parametrize("own", [True, False], ids=["a database of its own", "its parent's"])
def test_a_parent_that_closes_its_views_takes_nothing_from_a_child(
    tmp_path: Path, own: bool
) -> None:
    path = tmp_path / "views" / "app.db"
    parent = Database(path, "app")
    with parent.writing() as db:
        db.execute("CREATE TABLE counted (number INTEGER)")

    def work(line: Connection) -> None:
        database = Database(path, "app") if own else parent
        line.send("open")
        line.recv()
        for number in range(20):
            with database.writing() as db:
                db.execute("INSERT INTO counted VALUES (?)", (number,))
        line.send("stored")
        line.recv()

    child = Child(work)
    assert child.hear() == "open"
    parent.close()
    child.say("closed")
    assert child.hear() == "stored"
    with closing(Database(path, "app")) as other, other.reading() as db:
        assert db.execute("SELECT count(*) FROM counted").get == 20
    child.say("end")
    child.end()


def test_a_child_that_only_reads_leaves_everything_as_it_is(log: FileLog, folder: Path) -> None:
    append(log, "a", "b")

    def work(line: Connection) -> list[str]:
        line.send(values(log))
        line.recv()
        return values(log)

    child = Child(work)
    assert child.hear() == ["a", "b"]
    append(log, "c")
    log.close()
    with FileLog(folder) as other:
        append(other, "d")
        child.say("go on")
        assert child.end() == ["a", "b", "c", "d"]
        assert values(other) == ["a", "b", "c", "d"]


def test_views_that_were_open_before_a_fork_are_read_on_both_sides(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "views" / "app.db", "app")) as database:
        with database.writing() as db:
            db.execute("CREATE TABLE shown AS SELECT 1 AS number")
        with Views(f"file:{tmp_path}") as views:

            def rows() -> list[dict[str, Any]]:
                return views.query("SELECT number FROM app.shown").dicts()

            assert rows() == [{"number": 1}]
            assert in_child(rows) == [{"number": 1}]
            with database.writing() as db:
                db.execute("UPDATE shown SET number = 2")
            assert in_child(rows) == rows() == [{"number": 2}]


def test_a_consumer_hears_of_what_a_child_has_appended(log: FileLog) -> None:
    with log.consumer("t") as consumer:
        for value in ("a", "b", "c"):
            assert consumer.poll() == []
            in_child(lambda value=value: append(log, value))  # type: ignore[misc]
            assert [record.value.decode() for record in consumer.poll()] == [value]


# Threads


class Busy:
    """Threads that append and read all the time."""

    def __init__(self, log: FileLog, threads: int) -> None:
        self.appended: list[str] = []
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True)
            for number in range(threads)
            for work in (self._appending(log, number), self._reading(log))
        ]

    def _appending(self, log: FileLog, thread: int) -> Callable[[], None]:
        numbers = itertools.count()

        def work() -> None:
            value = f"thread {thread}, {next(numbers)}"
            append(log, value)
            self.appended.append(value)

        return work

    def _reading(self, log: FileLog) -> Callable[[], None]:
        def work() -> None:
            known = list(self.appended)
            assert not Counter(known) - Counter(values(log))

        return work

    def _run(self, work: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                work()
        except BaseException as error:
            self._errors.append(error)
            raise

    def __enter__(self) -> Busy:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(left())
        assert not self._errors
        assert not any(thread.is_alive() for thread in self._threads)


def test_nothing_is_lost_when_a_busy_parent_forks_again_and_again(
    log: FileLog, folder: Path
) -> None:
    def work(child: int, line: Connection) -> int:
        append(log, f"child {child}, inherited")
        with FileLog(folder) as own:
            append(own, f"child {child}, own")
            return len(values(own)) + len(values(log))

    with Busy(log, 2) as busy:
        for first in range(0, 40, 4):
            children = [
                Child(lambda line, number=number: work(number, line))  # type: ignore[misc]
                for number in range(first, first + 4)
            ]
            assert all(child.end() for child in children)
    children_appended = [f"child {n}, {which}" for n in range(40) for which in ("inherited", "own")]
    assert values(log) == sorted(busy.appended + children_appended)
    ends = [state.end for state in log.topic("t").partitions]
    assert sum(ends) == len(busy.appended) + 80, "no offset was given twice"


def test_starting_programs_with_preexec_fn_holds_nobody_up(log: FileLog) -> None:
    with Busy(log, 2) as busy:
        for number in range(40):
            started = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", ""],
                preexec_fn=lambda: None,  # noqa: PLW1509 pyspark starts Java so
            )
            assert started.wait(left()) == 0
            append(log, f"after {number}")
    assert values(log) == sorted(busy.appended + [f"after {number}" for number in range(40)])


def test_whoever_would_use_a_connection_while_a_process_forks_waits_until_it_has(
    log: FileLog,
) -> None:
    append(log, "a")
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(values(log)))
    sqlite._gate.before()
    try:
        assert not sqlite._gate.connections
        thread.start()
        thread.join(0.1)  # in which it would be done, if it did not wait
        assert not sqlite._gate.connections
        assert not found
    finally:
        sqlite._gate.in_parent()
    thread.join(left())
    assert found == ["a"]


HOLD = """
import sys, apsw
db = apsw.Connection(sys.argv[1]); db.execute("BEGIN IMMEDIATE")
print("held", flush=True); sys.stdin.read()
"""


def test_a_thread_that_waits_for_the_write_lock_lets_a_fork_go_first(
    log: FileLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = threading.Semaphore(0)
    pause = sqlite._gate.pause

    def counted(seconds: float) -> None:
        tries.release()
        pause(seconds)

    monkeypatch.setattr(sqlite._gate, "pause", counted)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder / "catalog.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"
        waiting = [threading.Thread(target=append, args=(log, f"late {n}")) for n in range(3)]
        for thread in waiting:
            thread.start()
            assert tries.acquire(timeout=left())
        assert in_child(lambda: values(log)) == [], "and not refused"
        holder.stdin.close()
    for thread in waiting:
        thread.join(left())
    assert values(log) == ["late 0", "late 1", "late 2"]


def test_a_lock_that_a_thread_holds_at_the_fork_is_free_in_the_child(log: FileLog) -> None:
    append(log, "parent")
    with log._disk._lock:
        # Whoever holds it is another thread, for all that the child's first thread knows.
        forked: list[Child] = []
        thread = threading.Thread(target=lambda: forked.append(Child(lambda _: append(log, "c"))))
        thread.start()
        thread.join(left())
        forked[0].end()
    assert values(log) == ["c", "parent"]


def test_a_connection_that_a_thread_uses_at_the_fork_keeps_no_child_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = sqlite.Link("Memory", lambda: sqlite.connect(":memory:", 0), patience=0)
    inside, over = threading.Event(), threading.Event()

    def stay() -> None:
        with link:
            inside.set()
            over.wait(left())

    monkeypatch.setattr(sqlite, "FORK_PATIENCE", 0.01)
    thread = threading.Thread(target=stay)
    thread.start()
    assert inside.wait(left())
    assert in_child(lambda: link._lock.acquire(blocking=False))
    over.set()
    thread.join(left())


def test_a_thread_that_comes_to_the_gate_at_the_fork_keeps_no_child_waiting() -> None:
    gate = sqlite._Gate()
    thread = threading.Thread(target=gate._change.acquire)
    thread.start()
    thread.join(left())
    gate.in_child()
    assert gate._change.acquire(blocking=False)


# What cannot be made safe


def test_a_child_that_was_forked_in_a_transaction_is_refused_in_words(
    log: FileLog, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def work() -> list[str]:
        refusals = []
        for use in (lambda: db.execute("SELECT 1"), log.topics, lambda: FileLog(folder)):
            with pytest.raises(MisusedHandle, match="spawn") as refused:
                use()
            refusals.append(refused.value.message)
        return refusals

    append(log, "before")
    with log._catalog.writing() as db:
        db.execute("UPDATE head SET time = time + 1")
        refusals = in_child(work)
    assert len(set(refusals)) == 1
    assert "forked in the middle of a transaction" in caplog.text
    append(log, "after")
    assert values(log) == ["after", "before"]
    caplog.clear()
    assert in_child(lambda: values(log)) == ["after", "before"]
    assert not caplog.records


@pytest.mark.parametrize("writing", [True, False], ids=["writing", "reading"])
def test_a_child_that_leaves_its_parents_transaction_does_not_touch_it(
    log: FileLog, writing: bool
) -> None:
    block = log._catalog.writing() if writing else log._catalog.reading()
    db = block.__enter__()
    if writing:
        db.execute("UPDATE head SET time = 5")
    else:
        assert db.execute("SELECT time FROM head").get == 0
    error = KeyboardInterrupt()
    assert not in_child(lambda: block.__exit__(KeyboardInterrupt, error, None))
    block.__exit__(None, None, None)
    with log._catalog.reading() as db:
        assert db.execute("SELECT time FROM head").get == (5 if writing else 0)


def test_a_child_cannot_commit_its_parents_transaction(log: FileLog) -> None:
    block = log._catalog.writing()
    block.__enter__().execute("UPDATE head SET time = 5")
    with pytest.raises(MisusedHandle, match="forked"):
        in_child(lambda: block.__exit__(None, None, None))
    error = KeyboardInterrupt()
    assert not block.__exit__(KeyboardInterrupt, error, None)
    with log._catalog.reading() as db:
        assert db.execute("SELECT time FROM head").get == 0


def test_a_fork_waits_for_a_thread_only_so_long_and_then_refuses_the_child(
    log: FileLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append(log, "a")
    inside, over = threading.Event(), threading.Event()

    def stay() -> None:
        with log._catalog.reading():
            inside.set()
            over.wait(left())

    monkeypatch.setattr(sqlite, "FORK_PATIENCE", 0.01)
    thread = threading.Thread(target=stay)
    thread.start()
    assert inside.wait(left())
    with pytest.raises(MisusedHandle, match="forked in the middle"):
        in_child(log.head)
    over.set()
    thread.join(left())
    assert "forked in the middle" in caplog.text
    assert in_child(lambda: values(log)) == values(log) == ["a"]


# Handles that belong to the parent


def test_a_child_cannot_use_its_parents_producer(log: FileLog) -> None:
    producer = log.producer(id="p", linger=LONG)
    producer.send("t", b"parent").wait()
    producer.send("t", b"pending")
    transaction = producer.transaction()
    transaction.send("t", b"of a transaction")

    def work() -> int:
        uses: list[Callable[[], object]] = [
            lambda: producer.send("t", b"child"),
            producer.flush,
            producer.transaction,
            lambda: producer.append("t", next(log.read("t")).data),
            transaction.commit,
        ]
        for use in uses:
            with pytest.raises(MisusedHandle, match="forked"):
                use()
        producer.close()
        log.close()
        return len(uses)

    assert in_child(work) == 5
    assert values(log) == ["parent"], "the child has not committed what its parent has pending"
    transaction.commit()
    producer.close()
    assert values(log) == ["of a transaction", "parent", "pending"]


@pytest.mark.parametrize("group", ["g", None])
def test_a_child_cannot_use_its_parents_consumer(log: FileLog, group: str | None) -> None:
    append(log, "a", "b")
    consumer = log.consumer("t", group=group, session=LONG)
    assert len(consumer.poll()) == 2

    def work() -> int:
        uses: list[Callable[[], object]] = [
            consumer.poll,
            lambda: next(iter(consumer)),
            consumer.commit,
            consumer.rewind,
        ]
        for use in uses:
            with pytest.raises(MisusedHandle, match="forked"):
                use()
        consumer.close()
        log.close()
        return len(uses)

    assert in_child(work) == 4
    if group is not None:
        assert len(log.group(group).members) == 1, "the child has not left for its parent"
        assert not any(lag.committed for lag in log.group(group).lags)
        consumer.commit()
        assert sum(lag.committed or 0 for lag in log.group(group).lags) == 2
    append(log, "c")
    assert len(consumer.poll()) == 1
    consumer.close()


def test_a_read_that_its_parent_has_begun_is_not_gone_on_with_by_a_child(log: FileLog) -> None:
    large = os.urandom(1 << 19).hex()
    with log.producer() as producer:
        for _ in range(6):
            producer.send("t", large, partition=0).wait()
    reading = log.read("t")
    next(reading)
    with pytest.raises(MisusedHandle, match="forked"):
        in_child(lambda: next(reading))
    assert in_child(lambda: sum(1 for _ in log.read("t"))) == 6
    assert sum(1 for _ in reading) == 5


def test_a_childs_upkeep_happens(folder: Path) -> None:
    """Whatever threads its parent had for it."""
    log = FileLog(folder)
    log.create_topic("t", settings={"segment_bytes": 4096, "retention_bytes": 8192})
    rows = numbered("x" * 1000, 20)
    append(log, *rows)
    log._upkeep._later.submit(int).result()  # the parent's own upkeep would hide the child's

    def work() -> None:
        append(log, *rows)
        log.close()

    in_child(work)
    log.close()
    with FileLog(folder) as other:
        assert other.topic("t").partitions[0].first > 20


UNWINDS = """
import atexit, os, sys
from headrace.log.file.log import FileLog

atexit.register(print, "at exit", flush=True)
with FileLog(sys.argv[1]) as log:
    log.create_topic("t")
    with log.producer() as producer, log.consumer("t", group="g") as consumer:
        producer.send("t", b"before").wait()
        with log._catalog.writing() as db:
            db.execute("UPDATE head SET time = time + 1")
            child = os.fork()
            if not child:
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        producer.send("t", b"after").wait()
        print(len(log.group("g").members), len(consumer.poll()))
"""


def test_a_child_that_ends_as_programs_do_leaves_its_parent_alone(folder: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", UNWINDS, str(folder)],
        capture_output=True,
        text=True,
        timeout=left(),
        check=False,
    )
    assert "Traceback" not in run.stderr
    assert run.stdout.splitlines() == ["at exit", "1 2", "at exit"]
    with FileLog(folder) as log:
        assert values(log) == ["after", "before"]


@pytest.mark.service
def test_a_child_cannot_use_its_parents_log_on_kafka_and_opens_its_own(
    broker: ClusterState,
) -> None:
    url = f"kafka://{broker.servers}"
    with open_log(url) as log:
        uses: list[Callable[[], object]] = [
            log.topics,
            lambda: log.topic("t"),
            lambda: log.consumer("t"),
        ]
        for use in uses:
            with pytest.raises(MisusedHandle, match="belongs to the process"):
                in_child(use)
        mine = f"forks-{uuid4().hex[:8]}"  # other tests create and delete topics meanwhile
        log.create_topic(mine)
        assert in_child(lambda: open_log(url).topic(mine).topic.name) == mine
        log.delete_topic(mine)
