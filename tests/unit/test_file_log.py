"""Features and internals of the embedded log alone."""

from __future__ import annotations

import os
import shutil
import threading
from datetime import timedelta
from pathlib import Path

import apsw
import pyarrow as pa
import pytest

from headrace.clock import FIRST_MOMENT, LAST_MOMENT, VirtualClock
from headrace.errors import CorruptCatalog, LogBusy, OffsetOutOfRange, UnknownTopic
from headrace.log.declared import TopicRow
from headrace.log.file import compaction
from headrace.log.file.checksums import checked_vfs
from headrace.log.file.compaction import Compactor
from headrace.log.file.disk import Disk
from headrace.log.file.high_water import noted_commit
from headrace.log.file.log import FileLog
from headrace.log.interface import Log
from headrace.log.producer import LogProducer
from headrace.schema.ddl import parse_schema

LONG = timedelta(hours=1)


def values(log: Log, topic: str) -> list[bytes]:
    return [record.value for batch in log.read(topic) for record in batch.records()]


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    made = FileLog(tmp_path / "log", patience=0.05)
    made.create_topic("t")
    return made


def busy(log: FileLog) -> apsw.Connection:
    """Another writer that does not release the lock."""
    other = apsw.Connection(str(log.folder / "catalog.db"), vfs=checked_vfs())
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
    other = apsw.Connection(str(log.folder / "catalog.db"), vfs=checked_vfs())
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


def test_columns_that_come_during_a_compaction_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, close_open = tmp_path / "log", Compactor._close_open
    with FileLog(folder) as log, FileLog(folder) as other:
        log.create_topic(
            "t", partitions=2, schema="k string, n int", key="k", settings={"cleanup": "compact"}
        )
        with other.producer() as producer:
            for n in (1, 2):
                producer.append("t", pa.table({"k": ["a"], "n": [n]}), partition=0)

        def meanwhile(self: Compactor, topic: TopicRow, partition: int) -> None:
            if partition == 1 and topic.topic.schema == parse_schema("k string, n int"):
                other.alter_topic("t", schema="k string, n int, m int")
                with other.producer() as producer:
                    for n in (3, 4):
                        rows = pa.table({"k": ["b"], "n": [n], "m": [n]})
                        producer.append("t", rows, partition=1)
            close_open(self, topic, partition)

        monkeypatch.setattr(Compactor, "_close_open", meanwhile)
        log.compact("t")
        rows = [record.value for batch in log.read("t") for record in batch.records()]
        assert rows == [{"k": "a", "n": 2, "m": None}, {"k": "b", "n": 4, "m": 4}]


def test_compaction_of_more_keys_than_are_merged_at_once_keeps_the_last_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_MERGE_ROWS", 2)
    with FileLog(tmp_path / "log") as log:
        log.create_topic("t", settings={"cleanup": "compact"})
        with log.producer() as producer:
            for number in range(9):
                keys, value = [b"a", b"%d" % (number % 3)], b"%d" % number
                producer.append("t", pa.table({"key": keys, "value": [value, value]}))
        log.compact("t")
        kept = [(r.key, r.value) for batch in log.read("t") for r in batch.records()]
        assert kept == [(b"0", b"6"), (b"1", b"7"), (b"a", b"8"), (b"2", b"8")]


def test_a_producer_knows_its_last_commit_after_retention_took_the_records(tmp_path: Path) -> None:
    clock = VirtualClock(10**15)
    with FileLog(tmp_path / "log", clock=clock) as log:
        log.create_topic("t", settings={"retention": "1h", "segment_age": "1h"})
        with log.producer(id="p") as producer:
            made = producer.append("t", pa.table({"value": [b"x"]}))
        clock.advance(2 * LONG)
        with log.producer() as other:
            other.append("t", pa.table({"value": [b"y"]}))
        log.upkeep("t")
        assert values(log, "t") == [b"y"]
        with log.producer(id="p") as producer:
            assert producer.last_receipt is not None
            assert producer.last_receipt.commit == made.commit


def test_a_scan_whose_next_file_was_removed_by_retention_says_so(tmp_path: Path) -> None:
    clock = VirtualClock(10**15)
    with FileLog(tmp_path / "log", clock=clock) as log:
        log.create_topic("t", settings={"segment_age": "1s"})
        with log.producer() as producer:
            for value in (b"0", b"1", b"2"):
                producer.append("t", pa.table({"value": [value]}))
                clock.advance(LONG)
        scan = log.read("t")
        assert [record.value for record in next(scan).records()] == [b"0"]
        log.alter_topic("t", settings={"retention": "1s"})
        log.upkeep("t")
        with pytest.raises(OffsetOutOfRange):
            next(scan)


def test_a_segment_that_is_full_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with FileLog(folder) as log:
        log.create_topic("t", settings={"segment_bytes": "4KiB"})
        with log.producer() as producer:
            for _ in range(10):
                producer.append("t", pa.table({"value": [b"x" * 1_000]}))
        assert (log.topic("t").partitions[0].segments or 0) > 2
    assert all(file.stat().st_size <= 4 << 10 for file in (folder / "segments").iterdir())


@pytest.mark.parametrize(
    ("times", "oldest", "newest", "misplaced"),
    [
        ([FIRST_MOMENT, -1, LAST_MOMENT], FIRST_MOMENT, LAST_MOMENT, 0),
        ([FIRST_MOMENT - 1, 0, None], 0, 0, 2),
        ([-1, LAST_MOMENT + 1], -1, -1, 1),
        ([FIRST_MOMENT - 1, LAST_MOMENT + 1], None, None, 2),
        ([None], None, None, 1),
    ],
)
def test_only_times_from_the_year_1_to_9999_are_believed(
    tmp_path: Path,
    times: list[int | None],
    oldest: int | None,
    newest: int | None,
    misplaced: int,
) -> None:
    with FileLog(tmp_path / "log") as log:
        log.create_topic("t", schema="at timestamp", event_time="at", settings={"skew": "none"})
        rows = pa.table({"at": pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))})
        with log.producer() as producer:
            producer.append("t", rows)
        (found,) = log.commits("t", 0, 10)
        assert (found.oldest, found.after, found.misplaced) == (oldest, newest, misplaced)


# A folder with parts of different age


def synced(log: FileLog, *values: bytes) -> None:
    with log.producer() as producer:
        for value in values:
            producer.send("t", value)
            producer.flush()


def copied(log: FileLog, folder: Path) -> Path:
    """A copy of a log in use that misses SQLite's WAL."""
    return Path(
        shutil.copytree(log.folder, folder, ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    )


def test_a_copy_without_the_wal_is_refused_and_says_what_to_do(
    log: FileLog, tmp_path: Path
) -> None:
    log.close()
    log = FileLog(log.folder)
    synced(log, b"1", b"2")
    copy = copied(log, tmp_path / "copy")
    with pytest.raises(
        CorruptCatalog, match=r"commit 2 was synced, but the catalog ends with commit 0"
    ):
        FileLog(copy)
    with pytest.raises(CorruptCatalog, match=r"copied without catalog\.db-wal"):
        FileLog(copy)
    (copy / "high-water").unlink()
    with FileLog(copy) as shorter:
        assert (shorter.head(), values(shorter, "t")) == (0, [])
    log.close()


def test_a_whole_copy_is_opened(log: FileLog, tmp_path: Path) -> None:
    synced(log, b"1", b"2")
    log.close()
    with FileLog(copied(log, tmp_path / "copy")) as copy:
        assert values(copy, "t") == [b"1", b"2"]


def test_only_what_is_synced_is_noted(log: FileLog) -> None:
    """A power cut may lose unsynced commits, and that is not an older catalog."""
    synced(log, b"1")
    assert noted_commit(log.folder) == 1
    with log.producer(acks="written") as producer:
        producer.send("t", b"2")
    assert noted_commit(log.folder) == 1
    log.create_topic("u")
    assert noted_commit(log.folder) == log.head() == 2


@pytest.mark.parametrize("cut", [b"", b"0000000000", b"99999999999999999999 00000000\n"])
def test_a_note_that_was_cut_short_says_nothing(log: FileLog, cut: bytes) -> None:
    synced(log, b"1")
    log.close()
    (log.folder / "high-water").write_bytes(cut)
    with FileLog(log.folder) as again:
        assert values(again, "t") == [b"1"]


def test_a_commit_does_not_fail_because_it_cannot_be_noted(log: FileLog) -> None:
    (log.folder / "high-water").mkdir()
    synced(log, b"1")
    assert values(log, "t") == [b"1"]
