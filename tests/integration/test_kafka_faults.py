"""Faults of a broker under a pipeline: it continues, or stops and says why."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import headrace as hr
from headrace.application.run import Run
from headrace.errors import AlreadyRunning, PipelineError
from headrace.pipeline.stream import Source
from headrace.plan.crash_points import nothing
from headrace.plan.steps import steps_of
from headrace.runtime.checkpoint import Checkpoint, live_owner
from headrace.runtime.realtime.query import RealTimeQuery
from headrace.runtime.realtime.settings import RealTime
from headrace.runtime.session import SparkSettings
from headrace.servers.kafka.state import ClusterState
from headrace.store.location import checkpoint_of
from headrace.testing import Crash, crash_at
from tests import kafka as brokers
from tests.kafka_runs import Runs, runs
from tests.spark import shared
from tests.waiting import left, wait_until

pytestmark = pytest.mark.service

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATENESS = hr.Lateness(10 * SECOND, 0 * SECOND)


@pytest.fixture
def kafka(broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    with runs(broker.servers, shared()) as made:
        yield made


def row(second: float, text: str = "") -> dict[str, Any]:
    return {"text": text, "at": BEGIN + second * SECOND}


def declare(kafka: Runs, what: str = "windows") -> tuple[hr.App, Source]:
    app = hr.App(kafka.name("app"))
    source = app.topic(
        kafka.name("in"), schema="text string, at timestamp", event_time="at", partitions=2,
        settings={"max_record_bytes": "2mib"},
    )  # fmt: skip
    if what == "windows":
        minutes = hr.tumbling(60 * SECOND)
        app.view("counts", hr.aggregate(source, by=(), window=minutes, lateness=LATENESS,
                                        rows=hr.count(), size=hr.max("length(text)")))  # fmt: skip
    else:
        once = hr.deduplicate(source, by="text", ttl=60 * SECOND, delay=0 * SECOND)
        app.publish(kafka.name("out"), once if what == "once" else source)
    return app, source


def remove(kafka: Runs, topic: str, partition: int, before: int) -> None:
    """Delete the first rows of a partition, as retention does."""
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    (answer,) = admin.delete_records([TopicPartition(topic, partition, before)]).values()
    answer.result(left())


def test_rows_that_are_gone_before_they_were_read_stop_a_pipeline(kafka: Runs) -> None:
    app, source = declare(kafka)
    kafka.send(source, row(1), row(2), partition=1)
    kafka.run(app)
    kafka.send(source, *map(row, range(3, 10)), partition=1)
    remove(kafka, source.topic.name, 1, 5)
    with pytest.raises(PipelineError, match="has not read offsets 2 to 4 of partition 1") as caught:
        kafka.run(app)
    assert "--fresh" in caught.value.hint
    assert (caught.value.details["first"], caught.value.details["end"]) == (2, 5)


def test_rows_that_are_gone_stop_a_pipeline_without_state_in_spark(kafka: Runs) -> None:
    app, source = declare(kafka, "once")
    kafka.send(source, row(1), row(2), partition=1)
    kafka.run(app)
    kafka.send(source, *map(row, range(3, 10)), partition=1)
    remove(kafka, source.topic.name, 1, 5)
    with pytest.raises(PipelineError, match=r"has not read offsets 2 to 4"):
        kafka.run(app)


def test_who_catches_up_does_not_wait_for_rows_that_are_gone(kafka: Runs) -> None:
    app, source = declare(kafka)
    kafka.send(source, row(1), row(2), partition=1)
    kafka.run(app)
    kafka.send(source, *map(row, range(3, 10)), partition=1)
    remove(kafka, source.topic.name, 1, 9)
    other = hr.App(f"{app.name}-other")
    again = other.topic(source.topic.name, schema="text string, at timestamp", event_time="at")
    other.publish(f"{app.name}-other.out", again)
    results = kafka.run(other)
    assert [step.law.rows for step in results.steps] == [0]


@pytest.mark.parametrize("read", [0, 2])
def test_rows_that_are_gone_before_they_were_read_stop_a_run_in_real_time(
    kafka: Runs, tmp_path: Path, read: int
) -> None:
    app, source = declare(kafka, "rows")
    kafka.send(source, *map(row, range(10)), partition=1)
    (step,) = steps_of(app)
    checkpoint = Checkpoint(tmp_path / "live")
    checkpoint.claim(live_owner(step))
    for folder, said in (
        ("offsets", f'v1\n{{}}\n{{"{source.topic.name}":{{"0":0,"1":{read}}}}}'),
        ("commits", "v1\n{}"),
    ):
        (checkpoint.path / folder).mkdir()
        (checkpoint.path / folder / "0").write_text(said)
    remove(kafka, source.topic.name, 1, 5)
    query = RealTimeQuery(kafka.spark, kafka.log, step, checkpoint.path, RealTime(), lambda _: None)
    with pytest.raises(PipelineError, match=f"has not read offsets {read} to 4 of partition 1"):
        query.start()


def test_a_topic_that_was_deleted_stops_a_pipeline(kafka: Runs) -> None:
    app, source = declare(kafka)
    kafka.send(source, row(1), row(2), partition=1)
    kafka.run(app)
    kafka.log.delete_topic(source.topic.name)
    with pytest.raises(PipelineError, match="was deleted and created again"):
        kafka.run(app)


def test_partitions_that_are_added_are_read_from_their_beginning(kafka: Runs) -> None:
    app, source = declare(kafka)
    kafka.send(source, row(1), row(2))
    kafka.run(app)
    kafka.log.alter_topic(source.topic.name, partitions=4)
    for partition in range(4):
        kafka.send(source, row(3 + partition), partition=partition)
    results = kafka.run(app)
    assert [r["rows"] for r in results.view("counts")] == [6]
    assert results.law("counts").holds


def test_a_record_of_a_megabyte_is_a_row_like_any_other(kafka: Runs) -> None:
    app, source = declare(kafka)
    kafka.send(source, row(1, "x" * 1_000_000), row(2, "y"))
    (found,) = kafka.run(app).view("counts")
    assert (found["rows"], found["size"]) == (2, 1_000_000)


def test_windows_go_on_without_their_checkpoint(kafka: Runs) -> None:
    app, source = declare(kafka)
    kafka.send(source, row(1))
    kafka.run(app)
    shutil.rmtree(checkpoint_of(kafka.log.home, app.name, "counts"))
    kafka.send(source, row(2))
    results = kafka.run(app)
    assert [r["rows"] for r in results.view("counts")] == [2]
    assert results.law("counts").rows == 2


def test_what_keeps_no_state_goes_on_without_its_checkpoint(kafka: Runs) -> None:
    app, source = declare(kafka, "rows")
    out = kafka.name("out")
    kafka.send(source, row(1, "a"), row(2, "b"))
    kafka.run(app)
    shutil.rmtree(checkpoint_of(kafka.log.home, app.name, out))
    kafka.send(source, row(3, "c"), row(4, "d"))
    assert sorted(r["text"] for r in kafka.run(app).topic(out)) == ["a", "b", "c", "d"]
    kafka.send(source, row(5, "e"))
    results = kafka.run(app)
    assert sorted(r["text"] for r in results.topic(out)) == ["a", "b", "c", "d", "e"]
    assert results.law(out).rows == 5


def test_of_a_batch_whose_checkpoint_is_lost_only_what_was_not_written_is_written(
    kafka: Runs,
) -> None:
    app, source = declare(kafka, "rows")
    out = kafka.name("out")
    for first in (True, False):  # before anything is stored, and after
        begun = [r["text"] for r in kafka.run(app).topic(out)] if not first else []
        kafka.send(source, *(row(n, f"{first} {n}") for n in range(4)))
        with pytest.raises(Crash):
            kafka.run(app, crash_point=crash_at("computed"))
        shutil.rmtree(checkpoint_of(kafka.log.home, app.name, out))
        kafka.log.alter_topic(source.topic.name, partitions=3 if first else 4)
        kafka.send(source, *(row(n, f"{first} {n}") for n in range(4, 12)))
        results = kafka.run(app)
        expected = [*begun, *(f"{first} {n}" for n in range(12))]
        assert sorted(r["text"] for r in results.topic(out)) == sorted(expected)
        assert results.law(out).holds


@pytest.mark.parametrize("stopped", [True, False])
def test_a_topic_that_was_made_again_and_has_grown_is_another_topic(
    kafka: Runs, *, stopped: bool
) -> None:
    app, source = declare(kafka)
    name = source.topic.name

    def make_again(point: str = "") -> None:
        if point in ("", "computed"):
            kafka.log.delete_topic(name)
            kafka.send(source, *map(row, range(60)))

    kafka.send(source, *map(row, range(10)))
    if stopped:
        kafka.run(app)
        make_again()
    with pytest.raises(PipelineError, match="was deleted and created again") as caught:
        kafka.run(app, crash_point=nothing if stopped else make_again)
    assert "--fresh" in caught.value.hint
    assert [r["rows"] for r in kafka.run(app, fresh=True).view("counts")] == [60]


def test_a_topic_that_is_made_again_between_two_rounds_is_another_topic(kafka: Runs) -> None:
    app, source = declare(kafka, "once")

    def make_again(point: str) -> None:
        if point == "batch began":
            kafka.log.delete_topic(source.topic.name)
            kafka.send(source, *(row(n, f"other {n}") for n in range(60)))

    kafka.send(source, *(row(n, f"{n}") for n in range(10)))
    with pytest.raises(PipelineError, match="was deleted and created again"):
        kafka.run(app, crash_point=make_again)
    assert not [r for b in kafka.log.read(kafka.name("out")) for r in b.records()]


def test_by_another_address_of_its_cluster_an_application_goes_on_where_it_was(
    kafka: Runs,
) -> None:
    app, source = declare(kafka, "rows")
    kafka.send(source, row(1, "a"))
    kafka.run(app)
    kafka.send(source, row(2, "b"))
    with runs(kafka.servers.replace("127.0.0.1", "localhost"), kafka.spark) as others:
        assert others.log.home != kafka.log.home
        assert [r["text"] for r in others.run(app).topic(kafka.name("out"))] == ["a", "b"]
        with Run(app, others.log, spark=kafka.spark), pytest.raises(AlreadyRunning):
            Run(app, kafka.log, spark=kafka.spark)


def test_of_two_pipelines_with_one_name_the_second_is_refused(kafka: Runs) -> None:
    app, source = declare(kafka)
    kafka.send(source, row(1))
    with (
        Run(app, kafka.log, spark=kafka.spark),
        pytest.raises(AlreadyRunning),
        Run(app, kafka.log, spark=kafka.spark),
    ):
        pass


def test_kafka_is_told_how_far_a_step_is(kafka: Runs) -> None:
    app, source = declare(kafka)
    kafka.send(source, *map(row, range(5)))
    kafka.run(app)
    kafka.send(source, *map(row, range(3)), partition=0)
    group = f"{app.name}.counts"
    wait_until(lambda: kafka.log.group(group).lags)
    lags = kafka.log.group(group).lags
    assert {lag.partition: (lag.committed, lag.records) for lag in lags} == {0: (3, 3), 1: (2, 0)}


@pytest.mark.slow
def test_a_broker_that_goes_away_and_comes_back_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    with (
        brokers.running(tmp_path / "kafka") as cluster,
        runs(cluster.state().servers, shared()) as kafka,
    ):
        app, source = declare(kafka)
        kafka.send(source, row(1), row(2))
        settings = SparkSettings(shuffle_partitions=2, brief=True)
        with Run(app, kafka.log, spark=kafka.spark, settings=settings) as running:
            _wait(running, 2)
            cluster.kill(1)
            assert not running.wait(5)
            cluster.up()
            kafka.send(source, row(3), row(4))
            _wait(running, 4)


def _wait(running: Run, rows: int) -> None:
    """Wait until this many rows have been counted."""
    while running.progress()[0].law.counted < rows:
        assert not running.wait(0.2)
