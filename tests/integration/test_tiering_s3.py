"""Tiering to an S3-compatible server, over real HTTP on this machine."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from headrace.clock import SystemClock, VirtualClock
from headrace.errors import CorruptSegment, InvalidSetting, Retryable, StorageUnavailable
from headrace.log import Offset
from headrace.log.file import storage
from headrace.log.file.log import FileLog

pytestmark = pytest.mark.service

SECRET = "hunter2-is-the-secret"
START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class S3:
    """A server that can be stopped, and started again at the same address with its data."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.bucket = ""
        self.up = False

    def start(self) -> None:
        if not self.up:
            self._server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
            self._server.start()
            self.up = True

    def stop(self) -> None:
        if self.up:
            self._server.stop()
            self.up = False

    def use(self, bucket: str) -> None:
        """Start with an empty bucket."""
        self.bucket = bucket
        self._client = boto3.client(
            "s3", endpoint_url=f"http://127.0.0.1:{self.port}", region_name="us-east-1"
        )
        self._client.create_bucket(Bucket=bucket)

    @property
    def url(self) -> str:
        return (
            f"s3://{self.bucket}/logs/demo"
            f"?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        )

    def segments(self) -> list[str]:
        found = self._client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return [entry["Key"] for entry in found if entry["Key"].endswith(".arrows")]

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self.bucket, Key=key)


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    server = S3()
    yield server
    server.stop()


@pytest.fixture
def s3(server: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    server.start()
    server.use(f"segments-{tmp_path.name.strip('_').replace('_', '-')}"[:63])
    return server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def log(tmp_path: Path, clock: VirtualClock, s3: S3) -> Iterator[FileLog]:
    """A log with one topic: two partitions of four records, one segment per record."""
    with FileLog(tmp_path / "log", clock=clock) as log:
        log.create_topic("clicks", partitions=2, settings={"segment_age": "1m", "tier": s3.url})
        with log.producer() as producer:
            for number in range(4):
                for partition in (0, 1):
                    producer.send("clicks", f"{partition}-{number}", partition=partition)
                producer.flush()
                clock.advance(MINUTE)
        yield log


def values(log: FileLog, start: Offset = Offset(0)) -> list[bytes]:  # noqa: B008
    batches = log.read("clicks", start=start)
    return [record.value for batch in batches for record in batch.records()]


ALL = [b"%d-%d" % (partition, number) for partition in (0, 1) for number in range(4)]


def test_segments_are_tiered_to_s3_and_read_back(log: FileLog, s3: S3, tmp_path: Path) -> None:
    (report,) = log.upkeep()
    assert report.segments_tiered == 6
    assert len(s3.segments()) == 6
    assert all(key.startswith("logs/demo/") for key in s3.segments())
    assert len(list((tmp_path / "log" / "segments").iterdir())) == 2, "the open ones stay"
    assert values(log) == ALL
    consumer = log.consumer("clicks", start=Offset(1))
    assert sorted(record.value for record in consumer.poll()) == [v for v in ALL if v[-1:] != b"0"]


def test_retention_deletes_the_objects(log: FileLog, s3: S3, clock: VirtualClock) -> None:
    log.upkeep()
    clock.advance(timedelta(hours=1))
    log.alter_topic("clicks", settings={"retention": "30m"})
    log.upkeep()
    assert s3.segments() == []
    assert values(log, Offset(4)) == []


def test_an_object_that_is_gone_is_damage_and_not_a_server_that_is_down(
    log: FileLog, s3: S3
) -> None:
    log.upkeep()
    s3.delete(s3.segments()[0])
    with pytest.raises(CorruptSegment, match="missing") as caught:
        values(log)
    assert (caught.value.details["partition"], caught.value.details["offset"]) == (0, 0)


def test_a_dead_server_is_unavailable_soon_and_everything_is_there_when_it_is_back(
    log: FileLog, s3: S3
) -> None:
    log.upkeep()
    s3.stop()
    clock = SystemClock()
    began = clock.now()
    with pytest.raises(StorageUnavailable) as caught:
        values(log)
    assert clock.now() - began < 10_000_000, "it must not hang"
    assert isinstance(caught.value, Retryable)
    assert f"s3://{s3.bucket}/logs/demo/" in str(caught.value)
    assert SECRET not in str(caught.value) + repr(caught.value.details)
    # The local segments stay readable and writable meanwhile.
    assert values(log, Offset(3)) == [b"0-3", b"1-3"]
    with log.producer() as producer:
        producer.send("clicks", b"0-4", partition=0)
    s3.start()
    assert values(log) == sorted([*ALL, b"0-4"])


@pytest.mark.parametrize("here", [0, 1])
def test_a_server_that_is_down_costs_a_consumer_nothing_of_what_is_here(
    log: FileLog, s3: S3, here: int
) -> None:
    log.upkeep()
    s3.stop()
    consumer = log.consumer("clicks", group="readers")
    consumer.seek(Offset(3), "clicks", here)  # this one is on the local disk; the other is not
    found = []
    errors = 0
    for _ in range(2):
        try:
            found += [record.value for record in consumer.poll()]
        except StorageUnavailable:
            errors += 1
    assert errors > 0, "records that cannot be read raise an error"
    s3.start()
    for _ in range(3):
        try:
            found += [record.value for record in consumer.poll()]
        except StorageUnavailable:
            continue  # deferred earlier
    consumer.close()
    there = [b"%d-%d" % (1 - here, number) for number in range(4)]
    assert sorted(found) == sorted([b"%d-3" % here, *there]), "nothing lost, nothing twice"
    assert log.group("readers").lag == 0


def test_tiering_to_a_dead_server_keeps_the_segments_here(log: FileLog, s3: S3) -> None:
    s3.stop()
    with pytest.raises(StorageUnavailable):
        log.upkeep()
    assert [state.tiered_segments for state in log.topic("clicks").partitions] == [0, 0]
    assert values(log) == ALL
    s3.start()
    (report,) = log.upkeep()
    assert report.segments_tiered == 6


def test_what_cannot_be_deleted_now_is_deleted_later(
    log: FileLog, s3: S3, caplog: pytest.LogCaptureFixture
) -> None:
    log.upkeep()
    s3.stop()
    with caplog.at_level(logging.WARNING):
        log.delete_topic("clicks")
    assert caplog.text.count("tried again") == 1, "a dead server is waited for once, not per file"
    assert SECRET not in caplog.text
    s3.start()
    assert len(s3.segments()) == 6
    log.upkeep()
    assert s3.segments() == []


def test_a_server_that_never_answers_is_given_up_on(
    log: FileLog, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pyarrow by itself retries for a minute and a half.
    log.upkeep()
    s3.stop()
    monkeypatch.setattr(storage, "CONNECT_TIMEOUT", 0.5)
    monkeypatch.setattr(storage, "REQUEST_TIMEOUT", 0.5)
    with socket.socket() as hole:
        hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hole.bind(("127.0.0.1", s3.port))
        hole.listen(64)
        clock = SystemClock()
        began = clock.now()
        with pytest.raises(StorageUnavailable):
            values(log)
        assert clock.now() - began < 10_000_000


@pytest.mark.parametrize(
    "tier",
    [
        f"s3://AKIA:{SECRET}@bucket/logs?region=us-east-1&endpoint_override=127.0.0.1:1&scheme=http",
        f"s3://bucket/logs?secret_key={SECRET}",
        f"s3://bucket/logs?region=us-east-1&access_key={SECRET}",
        f"s3://bucket/logs?session_token={SECRET}",
        f"https://host/logs?sig={SECRET}",
        f"s3://bucket/logs?no_such_option={SECRET}",
    ],
)
def test_a_secret_in_a_tier_url_is_refused_and_never_shown(tmp_path: Path, tier: str) -> None:
    with FileLog(tmp_path / "log") as log:
        with pytest.raises(InvalidSetting) as caught:
            log.create_topic("clicks", settings={"tier": tier})
        shown = f"{caught.value!s} {caught.value!r} {caught.value.details!r} {caught.value.hint}"
        assert SECRET not in shown
        context = caught.value.__cause__ or caught.value.__context__
        if not caught.value.__suppress_context__:
            assert SECRET not in str(context), "a traceback shows it too"
        log.create_topic("clicks")
        with pytest.raises(InvalidSetting) as caught:
            log.alter_topic("clicks", settings={"tier": tier})
        assert SECRET not in str(caught.value)
    for path in (tmp_path / "log").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()
