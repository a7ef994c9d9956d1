"""What only the embedded log can be asked, with its insides in hand."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from headrace.clock import VirtualClock
from headrace.errors import CorruptCatalog, LogBusy, MisusedHandle, UnknownTopic
from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog
from headrace.log.interface import Log
from headrace.log.producer import LogProducer

LONG = timedelta(hours=1)


def values(log: Log, topic: str) -> list[bytes]:
    return [record.value for batch in log.read(topic) for record in batch.records()]


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    made = FileLog(tmp_path / "log", patience=0.05)
    made.create_topic("t")
    return made


def busy(log: FileLog) -> apsw.Connection:
    """Another writer, who does not let go."""
    other = apsw.Connection(str(log.folder / "catalog.db"))
    other.execute("BEGIN IMMEDIATE")
    return other


def test_a_transaction_that_found_the_log_busy_can_be_committed_again(log: FileLog) -> None:
    with log.producer() as producer:
        transaction = producer.transaction()
        transaction.send("t", b"x")
        other = busy(log)
        with pytest.raises(LogBusy):
            transaction.commit()
        other.execute("ROLLBACK")
        assert transaction.commit() is not None
    assert values(log, "t") == [b"x"]


def test_a_send_that_found_the_log_busy_has_taken_its_record_once(log: FileLog) -> None:
    producer = log.producer(linger=LONG, batch_bytes=1)
    other = busy(log)
    producer.send("t", b"x")
    with pytest.raises(LogBusy):
        producer.flush()
    other.execute("ROLLBACK")
    producer.close()
    assert values(log, "t") == [b"x"]


def test_records_of_a_topic_that_is_gone_are_told_of_even_if_the_log_was_busy_first(
    log: FileLog,
) -> None:
    log.create_topic("x")
    producer = log.producer(linger=LONG)
    producer.send("t", b"kept")
    producer.send("x", b"lost")
    log.delete_topic("x")
    assert isinstance(producer, LogProducer)
    producer._committer.forget("x")  # so that it is missed before the log is found busy
    other = busy(log)
    with pytest.raises(LogBusy):
        producer.flush()
    other.execute("ROLLBACK")
    with pytest.raises(UnknownTopic):
        producer.flush()
    producer.close()
    assert values(log, "t") == [b"kept"]


@pytest.mark.parametrize("looping", [True, False])
def test_at_most_once_hands_out_nothing_that_it_could_not_commit(
    log: FileLog, looping: bool
) -> None:
    with log.producer() as producer:
        for number in range(3):
            producer.send("t", str(number))
    with log.consumer("t", group="g", commit="before", session=LONG) as consumer:
        other = busy(log)
        with pytest.raises(LogBusy):
            next(iter(consumer)) if looping else consumer.poll()
        other.execute("ROLLBACK")
        assert [record.value for record in consumer.poll()] == [b"0", b"1", b"2"]


def test_a_producer_does_not_cross_a_fork(log: FileLog) -> None:
    producer = log.producer(id="p", linger=LONG)
    producer.send("t", b"parent").wait()
    child = os.fork()
    if not child:
        try:
            producer.flush()
        except MisusedHandle:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    producer.send("t", b"parent again").wait()
    assert values(log, "t") == [b"parent", b"parent again"]


def test_recovery_leaves_the_ends_of_partitions_alone_that_lost_nothing(tmp_path: Path) -> None:
    class NextBoot(Disk):
        def boot(self) -> str:
            return "another"

    folder = tmp_path / "log"
    clock = VirtualClock(10**15)
    log = FileLog(folder, clock=clock)
    log.create_topic("c", settings={"cleanup": "compact", "tombstone_retention": "1s"})
    log.create_topic("other")
    with log.producer() as producer:
        producer.send("c", b"v", key="K")
        producer.send("c", None, key="K")
    clock.advance(timedelta(minutes=1))
    log.compact("c")
    assert values(log, "c") == []
    with log.producer(acks="written") as producer:
        producer.send("other", b"to be lost")
    log.close()
    newest = max((folder / "segments").iterdir())
    newest.write_bytes(b"")
    with FileLog(folder, clock=clock, disk=NextBoot()) as again:
        assert values(again, "other") == []
        assert again.topic("c").partitions[0].end == 2
        with again.producer() as producer:
            assert producer.send("c", b"new", key="K").wait().acks[0].first == 2


def test_threads_that_end_leave_no_connection_behind(log: FileLog) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    log.head()
    before = count()
    for _ in range(50):
        thread = threading.Thread(target=log.head)
        thread.start()
        thread.join()
    assert count() < before + 10


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_catalog_that_lost_a_chunk_says_so(log: FileLog, lost: int) -> None:
    with log.producer() as producer:
        for number in range(3):
            producer.send("t", str(number)).wait()
    other = apsw.Connection(str(log.folder / "catalog.db"))
    other.execute("DELETE FROM chunk WHERE first = ?", (lost,))
    found = []
    with pytest.raises(CorruptCatalog, match=f"from offset {lost} on"):
        for batch in log.read("t"):
            found += [record.offset for record in batch.records()]
    assert found == []


def test_compaction_may_leave_offsets_out(log: FileLog) -> None:
    log.alter_topic("t", settings={"cleanup": "compact"})
    with log.producer() as producer:
        for number in range(3):
            producer.send("t", str(number), key="k").wait()
    log.compact("t")
    log.alter_topic("t", settings={"cleanup": "delete"})
    assert values(log, "t") == [b"2"]
