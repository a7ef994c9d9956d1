"""Faults of the journal of commits on Kafka, each with its own error, and many who cut at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import headrace as hr
from headrace.errors import HeadraceError, LogError
from headrace.log import Commit, open_log
from headrace.log.kafka.journal import TOPIC
from tests import kafka as brokers
from tests.kafka_runs import Runs, runs
from tests.spark import shared
from tests.waiting import left

pytestmark = pytest.mark.service

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """A broker for each test: what is broken is shared by all of its users."""
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    with (
        brokers.running(tmp_path / "kafka") as cluster,
        runs(cluster.state().servers, shared()) as made,
    ):
        yield made


def counting(kafka: Runs) -> hr.App:
    app = hr.App(kafka.name("app"))
    rows = app.topic("rows", schema="k string, at timestamp", event_time="at")
    late = hr.Lateness(10 * SECOND, 20 * SECOND)
    step = hr.aggregate(rows, by="k", window=hr.tumbling(60 * SECOND), lateness=late, n=hr.count())
    app.view("counts", step)
    return app


def send(kafka: Runs, *seconds: int) -> None:
    kafka.log.ensure_topic(counting(kafka).topics["rows"])
    kafka.send("rows", *({"k": "a", "at": BEGIN + second * SECOND} for second in seconds))


def admin(kafka: Runs) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.servers})


def counted(kafka: Runs, app: hr.App, *, fresh: bool = False) -> int:
    (row,) = kafka.run(app, fresh=fresh).view("counts")
    return int(row["n"])


@pytest.mark.slow
def test_a_journal_that_was_deleted_stops_a_pipeline_until_it_starts_afresh(kafka: Runs) -> None:
    app = counting(kafka)
    send(kafka, 1, 2)
    assert counted(kafka, app) == 2
    client = admin(kafka)  # an answer needs it to live
    client.delete_topics([TOPIC])[TOPIC].result(left())
    send(kafka, 3)
    with pytest.raises(HeadraceError, match=TOPIC) as caught:
        kafka.run(app)  # this process knows the commits
    assert "--fresh" in caught.value.hint
    with runs(kafka.servers, shared()) as others:
        with pytest.raises(HeadraceError, match=TOPIC) as caught:
            others.run(app)  # this one has only the stored position
        assert "--fresh" in caught.value.hint
        assert counted(others, app, fresh=True) == 3


def test_a_journal_that_was_cut_off_is_named(kafka: Runs) -> None:
    app = counting(kafka)
    send(kafka, 1)
    kafka.run(app)
    place = TopicPartition(TOPIC, 0, 1)
    client = admin(kafka)
    client.delete_records([place])[place].result(left())
    with open_log(f"kafka://{kafka.servers}") as log, pytest.raises(LogError, match="cut off"):
        log.head()


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([("headrace.journal", b"2")], "has the format 2, and this headrace knows 1"),
        pytest.param([], "none", marks=pytest.mark.slow),
    ],
)
def test_a_record_of_another_format_is_not_guessed(
    kafka: Runs, headers: list[tuple[str, bytes]], said: str
) -> None:
    send(kafka, 1)
    kafka.log.cut(["rows"])
    producer = Producer({"bootstrap.servers": kafka.servers})
    producer.produce(TOPIC, b"{}", headers=headers)
    producer.flush()
    with open_log(f"kafka://{kafka.servers}") as log, pytest.raises(LogError, match=said):
        log.head()


def test_all_who_cut_at_once_agree_and_each_record_is_in_one_commit(kafka: Runs) -> None:
    kafka.log.create_topic("rows", partitions=3, schema="k string, at timestamp", event_time="at")
    done = threading.Event()

    def produce() -> None:
        for second in range(60):
            kafka.send("rows", *({"k": "a", "at": BEGIN + second * SECOND} for _ in range(5)))
        done.set()

    def cut() -> None:
        with open_log(f"kafka://{kafka.servers}") as log:
            while not done.is_set():
                log.cut_on(["rows"], rows=7)

    workers = [threading.Thread(target=work) for work in (produce, cut, cut, cut)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    head = kafka.log.cut(["rows"])
    with open_log(f"kafka://{kafka.servers}") as log:
        assert log.commits("rows", 0, 10_000) == kafka.log.commits("rows", 0, 10_000)
        assert sum(commit.rows for commit in log.commits("rows", 0, 10_000)) == 300
        places: list[tuple[int, int]] = []
        for commit in range(head):
            for batch in log.read("rows", start=Commit(commit), stop=Commit(commit + 1)):
                assert batch.commit == commit + 1
                places += [(batch.partition, offset) for offset in batch.offsets.tolist()]
    assert sorted(places) == [
        (p, offset) for p, end in enumerate((120, 120, 60)) for offset in range(end)
    ]
