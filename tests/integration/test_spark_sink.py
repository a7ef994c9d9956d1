"""The log as a Spark sink: a job writes all or nothing, a stream each batch once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.log import Log
from headrace.testing import ScriptedLog, scripted_log
from tests.spark import shared


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log() as log:
        log.log.create_topic("events", schema="n bigint, text string")
        log.log.create_topic("copies", schema="n bigint, text string", key="n", partitions=3)
        yield log


def numbers(log: ScriptedLog, topic: str = "copies") -> list[int]:
    return sorted(record.value["n"] for record in log.records(topic))


def save(frame: DataFrame, log: Log, *, mode: str = "append", **options: str) -> None:
    chosen = {"log": log.url, "topic": "copies", **options}
    frame.write.format("headrace").mode(mode).options(**chosen).save()


def copy(log: ScriptedLog, checkpoint: Path, **options: Any) -> None:
    """Copy `events` to `copies`, in batches of one commit."""
    query = (
        shared()
        .readStream.format("headrace")
        .options(log=log.log.url, topic="events", max_commits=1)
        .load()
        .writeStream.format("headrace")
        .options(log=log.log.url, topic="copies", checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def left_over(log: ScriptedLog) -> list[Path]:
    return list((Path(log.log.url.removeprefix("file:")) / "staging").glob("*"))


def test_a_job_adds_its_rows_by_key(log: ScriptedLog) -> None:
    save(shared().range(100).select(F.col("id").alias("n")), log.log)
    assert numbers(log) == list(range(100))
    assert {batch.partition for batch in log.log.read("copies")} == {0, 1, 2}
    assert left_over(log) == []


def test_a_job_without_rows_adds_nothing(log: ScriptedLog) -> None:
    save(shared().range(0).select(F.col("id").alias("n")), log.log)
    assert numbers(log) == []


def test_a_job_that_fails_adds_nothing(log: ScriptedLog) -> None:
    frame = shared().range(100).select(F.expr("if(id = 77, raise_error('no'), id)").alias("n"))
    with pytest.raises(PySparkException):
        save(frame, log.log)
    # A task that Spark gave up may leave its file, which later jobs remove.
    assert numbers(log) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topic": "nothing"}, "nothing"),
        ({"colour": "red"}, "no option 'colour'"),
        ({"mode": "overwrite"}, "can be appended to"),
    ],
)
def test_what_cannot_be_is_refused(log: ScriptedLog, change: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        save(shared().range(1).select(F.col("id").alias("n")), log.log, **change)


def test_a_column_that_the_topic_has_not_is_refused(log: ScriptedLog) -> None:
    with pytest.raises(PySparkException, match="no column 'id'"):
        save(shared().range(1), log.log)


def test_a_stream_adds_a_commit_for_each_of_its_batches(log: ScriptedLog, tmp_path: Path) -> None:
    for n in range(3):
        log.write("events", {"n": n, "text": "a"}, {"n": n + 10, "text": "b"})
    copy(log, tmp_path / "checkpoint")
    log.write("events", {"n": 3, "text": "a"})
    copy(log, tmp_path / "checkpoint")
    assert numbers(log) == [0, 1, 2, 3, 10, 11, 12]
    assert len(log.log.commits("copies", 0, 100)) == 4
    assert left_over(log) == []


def test_a_batch_that_is_repeated_is_there_once(log: ScriptedLog, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    for n in range(3):
        log.write("events", {"n": n, "text": "a"})
    copy(log, checkpoint)
    # As after a crash between the commit to the log and Spark's own.
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    copy(log, checkpoint)
    assert numbers(log) == [0, 1, 2]


def test_without_its_checkpoint_a_stream_is_another(log: ScriptedLog, tmp_path: Path) -> None:
    log.write("events", {"n": 1, "text": "a"})
    copy(log, tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "checkpoint")
    copy(log, tmp_path / "checkpoint")
    assert numbers(log) == [1, 1]


def test_a_batch_too_large_for_one_commit_is_refused(log: ScriptedLog, tmp_path: Path) -> None:
    for n in range(2):
        log.write("events", *({"n": n, "text": "x" * 900_000} for n in range(20)))
    query = (
        shared()
        .readStream.format("headrace")
        .options(log=log.log.url, topic="events")
        .load()
        .writeStream.format("headrace")
        .options(log=log.log.url, topic="copies", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="too many for one commit"):
        query.awaitTermination()
    assert numbers(log) == []
