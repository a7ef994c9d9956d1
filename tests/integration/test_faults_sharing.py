"""One log and many processes: racing writers, a held lock, readers without write permission."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import apsw
import pyarrow as pa
import pytest

from headrace.clock import SystemClock
from headrace.errors import LogBusy, MisusedHandle, NotALog, Retryable
from headrace.log.file.catalog import FILE_NAME
from headrace.log.file.log import FileLog
from tests.integration.processes import ROOT, answer, python, values
from tests.waiting import left

LONG = timedelta(hours=1)


# Two writers

WRITER = """
import json, sys
from datetime import timedelta
from headrace.errors import TopicExists
from headrace.log.file.log import FileLog

folder, name = sys.argv[1:]
sys.stdin.readline()  # both begin at once, with a log that is not there yet
log = FileLog(folder)
try:
    log.create_topic("clicks", partitions=2)
except TopicExists:
    pass
with log.producer(acks="written", linger=timedelta(hours=1)) as producer:
    for number in range(150):
        for partition in (0, 1):
            producer.send("clicks", f"{name}{number:03d}", partition=partition)
        producer.flush()
log.close()
print(json.dumps("done"))
"""


def test_two_processes_may_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    writers = [python(WRITER, tmp_path / "log", name) for name in "ab"]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [answer(writer) for writer in writers] == ["done", "done"]
    with FileLog(tmp_path / "log") as log:
        assert log.head() == 300
        seen = []
        for partition in (0, 1):
            records = [r for b in log.read("clicks", partitions=[partition]) for r in b.records()]
            assert [record.offset for record in records] == list(range(300))
            commits = [record.commit or 0 for record in records]
            assert commits == sorted(set(commits))
            seen.append(commits)
            for name in "ab":
                mine = [r.value.decode() for r in records if r.value.startswith(name.encode())]
                assert mine == [f"{name}{number:03d}" for number in range(150)]
        assert seen[0] == seen[1] == list(range(1, 301)), "a commit is in both partitions at once"


# A lock that another process holds


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[FileLog]:
    with FileLog(tmp_path / "log", patience=0.2) as log:
        log.create_topic("clicks")
        yield log


@pytest.fixture
def lock(patient: FileLog) -> Iterator[apsw.Connection]:
    """A process that holds the log's write lock, as if stopped in a commit."""
    other = apsw.Connection(str(patient.folder / FILE_NAME))
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()


def test_a_log_that_stays_locked_is_busy_and_can_be_read(
    patient: FileLog, lock: apsw.Connection
) -> None:
    clock = SystemClock()
    for call in (
        lambda: patient.create_topic("more"),
        lambda: patient.producer(id="loader"),
        lambda: patient.producer().append("clicks", pa.table({"value": ["x"]})),
        lambda: patient.consumer("clicks", group="readers"),
        lambda: patient.delete_topic("clicks"),
    ):
        began = clock.now()
        with pytest.raises(LogBusy, match=r"0\.2 s") as caught:
            call()
        assert isinstance(caught.value, Retryable)
        assert clock.now() - began >= 150_000, "it waited for its turn"
    assert values(patient) == []
    assert patient.consumer("clicks").poll() == []
    with FileLog(patient.folder, patience=0.2) as other:
        assert [topic.name for topic in other.topics()] == ["clicks"]


def test_a_producer_goes_on_after_a_busy_log_and_doubles_nothing(
    patient: FileLog, lock: apsw.Connection
) -> None:
    producer = patient.producer(linger=LONG)
    first = producer.send("clicks", b"1")
    for _ in range(2):
        with pytest.raises(LogBusy):
            producer.flush()
    producer.send("clicks", b"2")
    assert not first.done
    lock.execute("ROLLBACK")
    producer.close()
    assert first.done
    assert values(patient) == [b"1", b"2"]


# A folder that cannot be written

AS_NOBODY = """
import json, os, sys
import pyarrow as pa, pyarrow.compute
from headrace.errors import HeadraceError
from headrace.log.file.log import FileLog

folder = sys.argv[1]
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
log = FileLog(folder)
consumer = log.consumer("clicks")

def failure(call):
    try:
        call()
    except HeadraceError as error:
        return type(error).__name__
    return "nothing"

def send():
    with log.producer() as producer:
        producer.send("clicks", b"x")

print(json.dumps({
    "read": [r.value.decode() for b in log.read("clicks") for r in b.records()],
    "polled": [r.value.decode() for r in consumer.poll()],
    "head": log.head(),
    "groups": log.groups(),
    "failures": [
        failure(send),
        failure(lambda: log.producer(id="loader")),
        failure(lambda: log.producer().append("clicks", pa.table({"value": ["x"]}))),
        failure(lambda: log.create_topic("more")),
        failure(lambda: log.delete_topic("clicks")),
        failure(lambda: log.consumer("clicks", group="readers")),
        failure(lambda: log.upkeep()),
        failure(lambda: FileLog(folder + "/inside")),
    ],
}))
log.close()
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody can read; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-"))
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("writer", ["gone", "at work"])
def test_a_folder_that_cannot_be_written_can_be_read(shared: Path, writer: str) -> None:
    log = FileLog(shared / "log")
    log.create_topic("clicks", partitions=2, settings={"retention": "1d"})
    with log.producer() as producer:
        for partition in (0, 1):
            producer.send("clicks", b"%d" % partition, partition=partition)
    if writer == "gone":
        log.close()
    if not ROOT:
        for path in (shared / "log").rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        (shared / "log").chmod(0o555)
    before = {path: path.stat().st_mtime_ns for path in (shared / "log").rglob("*.arrows")}
    found = answer(python(AS_NOBODY, shared / "log"))
    assert (found["read"], found["polled"], found["head"]) == (["0", "1"], ["0", "1"], 1)
    assert found["groups"] == []
    assert found["failures"] == ["ReadOnlyLog"] * 8
    assert {path: path.stat().st_mtime_ns for path in before} == before
    log.close()


FOLLOWER = """
import json, os, sys
import pyarrow.compute
from headrace.log.file.log import FileLog

if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
log = FileLog(sys.argv[1])
consumer = log.consumer("clicks")
for line in sys.stdin:
    print(json.dumps([record.value.decode() for record in consumer.poll()]), flush=True)
log.close()
"""


@pytest.mark.parametrize("writer", ["gone", "at work"])
@pytest.mark.skipif(not ROOT, reason="needs somebody who may write and somebody who may not")
def test_who_may_only_read_sees_what_is_written_later(shared: Path, writer: str) -> None:
    log = FileLog(shared / "log")
    log.create_topic("clicks")
    if writer == "gone":
        log.close()
    follower = python(FOLLOWER, shared / "log")
    assert follower.stdin is not None
    assert follower.stdout is not None
    seen = []
    for number in range(3):
        print("poll", file=follower.stdin, flush=True)
        seen.append(json.loads(follower.stdout.readline()))
        if writer == "gone":
            log = FileLog(shared / "log")
        with log.producer() as producer:
            producer.send("clicks", str(number))
        if writer == "gone":
            log.close()
    print("poll", file=follower.stdin, flush=True)
    assert [*seen, answer(follower)] == [[], ["0"], ["1"], ["2"]]
    log.close()


def test_a_consumer_that_outlives_its_log_stops_by_itself(tmp_path: Path) -> None:
    # In real time, to check that its thread neither continues nor dies with a traceback.
    log = FileLog(tmp_path / "log")
    log.create_topic("clicks")
    before = set(threading.enumerate())
    consumer = log.consumer("clicks", group="readers", session=timedelta(milliseconds=30))
    (thread,) = set(threading.enumerate()) - before
    log.close()
    thread.join(left())
    assert not thread.is_alive()
    with pytest.raises(MisusedHandle, match="closed"):
        consumer.poll()


def test_a_log_that_must_be_there_already_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="no log"):
        FileLog(tmp_path / "log", create=False)
    assert not (tmp_path / "log").exists()
