"""Topics that other programs create and fill: a run adopts them with its declaration."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headrace as hr
from headrace.errors import InvalidPipeline, InvalidSchema
from headrace.pipeline.stream import Source
from headrace.servers.kafka.state import ClusterState
from headrace.servers.kafka.tools import tool_command
from tests.kafka_runs import Runs, letters, runs
from tests.spark import shared
from tests.waiting import left

pytestmark = pytest.mark.service

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SCHEMA = "url string, at timestamp"


@pytest.fixture
def kafka(broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    with runs(f"127.0.0.1:{broker.nodes[0].port}", shared()) as made:
        yield made


def make(kafka: Runs, topic: str, partitions: int = 3) -> str:
    """Create a topic as another program would."""
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(left())
    return topic


def fill(kafka: Runs, topic: str, values: Sequence[bytes | None]) -> None:
    """Write records as another program would."""
    producer = Producer({"bootstrap.servers": kafka.servers})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)
    producer.flush()


def at(second: int) -> datetime:
    return BEGIN + second * SECOND


def pageview(second: int, url: str) -> bytes:
    return orjson.dumps({"url": url, "at": at(second), "other": {"x": 1}})


def counted(kafka: Runs, source: Source, app: hr.App) -> None:
    per_minute = hr.aggregate(
        source,
        by="url",
        window=hr.tumbling(60 * SECOND),
        lateness=hr.Lateness(10 * SECOND, 20 * SECOND),
        hits=hr.count(),
    )
    app.view("hits", per_minute)
    hr.preflight(app, kafka.log.url).require()


def hits(rows: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(row["url"], row["window_start"][14:], row["hits"]) for row in rows]


def test_a_topic_of_another_program_is_adopted_and_what_does_not_decode_is_a_dead_letter(
    kafka: Runs,
) -> None:
    topic = make(kafka, kafka.name("clicks"))
    first = [pageview(5, "a"), b"not json", pageview(6, "a"), b'{"url": "\xe9"}']
    fill(kafka, topic, first)
    app = hr.App(kafka.name("app"))
    source = app.topic(topic, schema=SCHEMA, event_time="at")
    counted(kafka, source, app)
    assert kafka.log.foreign_topics([topic, "none"]) == {topic: 3}

    kafka.run(app, max_rows=1)
    fill(kafka, topic, [pageview(70, "b"), None, b'{"url": "c", "at": null}'])
    fill(kafka, topic, [b'{"url": "d", "at": 1794940181594}'])
    results = kafka.run(app, max_rows=1)

    assert hits(results.view("hits")) == [("a", "00:00", 2), ("b", "01:00", 1)]
    assert results.law("hits").holds
    assert [(partition, reason) for partition, _, reason, _ in letters(results, app.name)] == [
        (0, "does not decode"),
        (0, "ahead of the clock: 1794940181594 read as seconds; milliseconds?"),
        (1, "does not decode"),
        (2, "no event time"),
    ]
    adopted = kafka.log.topic(topic).topic
    assert (adopted.partitions, adopted.event_time) == (3, "at")
    assert kafka.log.foreign_topics([topic]) == {}
    counted(kafka, source, hr.App(kafka.name("other")))


@pytest.mark.slow
def test_an_added_column_that_no_step_uses_leaves_stored_results_as_they_are(kafka: Runs) -> None:
    topic = make(kafka, kafka.name("clicks"))
    name, out = kafka.name("app"), kafka.name("out")

    def declared(schema: str) -> hr.App:
        app = hr.App(name)
        source = app.topic(topic, schema=schema, event_time="at")
        lateness = hr.Lateness(10 * SECOND, 20 * SECOND)
        for view, window in (("hits", hr.tumbling(60 * SECOND)), ("near", hr.sliding(60 * SECOND))):
            made = hr.aggregate(source, by="url", window=window, lateness=lateness, hits=hr.count())
            app.view(view, made)
        app.publish(out, hr.select(source, "url", "at"))
        return app

    fill(kafka, topic, [pageview(5, "a"), pageview(6, "a"), pageview(7, "b")])
    kafka.run(declared(SCHEMA))
    wider = declared(f"{SCHEMA}, other struct<x: int>")
    assert {step.status for step in hr.preflight(wider, kafka.log).steps} == {"unchanged"}
    fill(kafka, topic, [pageview(8, "a")])
    results = kafka.run(wider)
    assert hits(results.view("hits")) == [("a", "00:00", 3), ("b", "00:00", 1)]
    assert max(row["hits"] for row in results.view("near")) == 3
    assert sorted(row["url"] for row in results.topic(out)) == ["a", "a", "a", "b"]
    schema = kafka.log.topic(topic).topic.schema
    assert schema is not None
    assert schema.names == ["url", "at", "other"]
    assert all(results.law(step).holds for step in ("hits", "near", out))


@pytest.mark.slow
def test_lines_of_the_console_producer_are_read_as_bytes(kafka: Runs) -> None:
    topic = kafka.name("access.log")
    lines = "a 200\nb 404\na 500\n"
    for tool, arguments, text in (
        ("topics", ["--create", "--topic", topic, "--partitions", "2"], ""),
        ("console-producer", ["--topic", topic], lines),
    ):
        command = tool_command(tool, arguments, kafka.servers)
        subprocess.run(command, input=text, text=True, check=True, timeout=300)
    app = hr.App(kafka.name("app"))
    source = app.topic(
        topic,
        schema="line string not null, at timestamp",
        event_time="at",
        settings={"format": "bytes", "missing_time": "arrival"},
    )
    status = "try_cast(split(line, ' ')[1] AS int)"
    app.publish(out := kafka.name("out"), hr.derive(source, status=status))
    hr.preflight(app, kafka.log.url).require()
    found = kafka.run(app).topic(out)
    assert sorted((row["line"], row["status"]) for row in found) == [
        ("a 200", 200),
        ("a 500", 500),
        ("b 404", 404),
    ]


def test_avro_of_another_program_is_read_if_the_settings_say_so(kafka: Runs) -> None:
    topic = make(kafka, kafka.name("clicks"))
    app = hr.App(kafka.name("app"))
    source = app.topic(topic, schema=SCHEMA, event_time="at", settings={"format": "avro"})
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [{"name": "url", "type": ["null", "string"]}, {"name": "at", "type": ["null", moment]}]
    schema = fastavro.parse_schema({"type": "record", "name": "click", "fields": fields})
    values = []
    for second in (1, 2, 61):
        fastavro.schemaless_writer(out := io.BytesIO(), schema, {"url": "a", "at": at(second)})
        values.append(out.getvalue())
    fill(kafka, topic, values)
    counted(kafka, source, app)
    assert hits(kafka.run(app).view("hits")) == [("a", "00:00", 2), ("a", "01:00", 1)]


def test_other_partitions_than_those_of_the_broker_are_refused(kafka: Runs) -> None:
    topic = make(kafka, kafka.name("clicks"))
    app = hr.App(kafka.name("app"))
    source = app.topic(topic, schema=SCHEMA, event_time="at", partitions=2)
    with pytest.raises(InvalidPipeline, match="has 3 partitions, and not the 2 declared"):
        counted(kafka, source, app)
    assert kafka.log.foreign_topics([topic]) == {topic: 3}
    right = hr.App(kafka.name("right"))
    counted(kafka, right.topic(topic, schema=SCHEMA, event_time="at", partitions=3), right)


def test_a_topic_declared_as_raw_bytes_is_not_adopted(kafka: Runs) -> None:
    topic = kafka.log.create_topic(kafka.name("raw")).name
    app = hr.App(kafka.name("app"))
    with pytest.raises(InvalidPipeline, match="raw bytes"):
        counted(kafka, app.topic(topic, schema=SCHEMA, event_time="at"), app)


def test_the_log_computes_event_times_and_says_which_it_cannot(kafka: Runs) -> None:
    topic = make(kafka, kafka.name("clicks"))
    schema = "id bigint, day string, at struct<ms: bigint>"
    for second in (1, 2, 2):
        millis = int(at(second).timestamp() * 1000)
        row = {"id": second, "day": "x", "at": {"ms": millis}}
        fill(kafka, topic, [orjson.dumps(row)])
    fill(kafka, topic, [b'{"id": 3, "at": {"ms": 1794940181594000}}', b'{"id": 4}'])
    app = hr.App(kafka.name("app"))
    source = app.topic(topic, schema=schema, event_time="timestamp_millis(at.ms)")
    once = hr.deduplicate(source, by="id", ttl=60 * SECOND, delay=10 * SECOND)
    app.publish(out := kafka.name("out"), once)
    results = kafka.run(app)
    assert sorted(row["id"] for row in results.topic(out)) == [1, 2]
    reasons = sorted(reason for _, _, reason, _ in letters(results, app.name))
    assert reasons == ["ahead of the clock", "no event time"]

    other = make(kafka, kafka.name("other"))
    app = hr.App(kafka.name("second"))
    source = app.topic(other, schema=schema, event_time="to_timestamp(day, 'dd.MM.yyyy')")
    app.publish(out, hr.deduplicate(source, by="id", ttl=60 * SECOND, delay=10 * SECOND))
    with pytest.raises(InvalidSchema, match="without Spark"):
        kafka.run(app)
