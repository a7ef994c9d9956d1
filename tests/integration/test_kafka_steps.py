"""Steps that read Kafka directly: views, late rows and dead letters from a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.clock import SystemClock, to_datetime
from headrace.errors import InvalidSetting
from headrace.log import Offset
from headrace.pipeline.stream import Source
from headrace.servers.kafka.state import ClusterState
from tests.kafka_runs import Runs, letters, runs
from tests.spark import shared

pytestmark = pytest.mark.service

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SCHEMA = "url string, user string, at timestamp"
LATENESS = hr.Lateness(10 * SECOND, 20 * SECOND)


@pytest.fixture
def kafka(broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    with runs(f"127.0.0.1:{broker.nodes[0].port}", shared()) as made:
        yield made


def row(second: float, url: str = "a", begin: datetime = BEGIN) -> dict[str, Any]:
    return {"url": url, "user": f"u{second}", "at": begin + second * SECOND}


def pageviews(kafka: Runs, partitions: int = 2, **settings: Any) -> tuple[hr.App, Source]:
    app = hr.App(kafka.name("app"))
    source = app.topic(
        kafka.name("pageviews"),
        schema=SCHEMA,
        key="url",
        event_time="at",
        partitions=partitions,
        settings=settings,
    )
    return app, source


def hits(rows: list[dict[str, Any]]) -> list[tuple[str, str, int, int, str]]:
    """The rows of a view, with the rank of their revisions: all tests share one journal."""
    ranks = sorted({row["_revision"] for row in rows})
    return [
        (
            row["url"],
            row["window_start"][14:],
            row["hits"],
            ranks.index(row["_revision"]) + 1,
            row["_state"],
        )
        for row in rows
    ]


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(BEGIN, marks=pytest.mark.slow),
        pytest.param(datetime(1969, 12, 31, 23), marks=pytest.mark.slow),
        datetime(1, 1, 1),
    ],
)
def test_rows_are_counted_and_what_comes_too_late_is_a_stream(kafka: Runs, begin: datetime) -> None:
    begin = begin.replace(tzinfo=UTC)
    app, source = pageviews(kafka, partitions=1)
    per_minute = hr.aggregate(
        source, by="url", window=hr.tumbling(60 * SECOND), lateness=LATENESS, hits=hr.count()
    )
    app.view("hits", per_minute)
    app.publish(late := kafka.name("late"), per_minute.late)

    kafka.send(source, row(5, "a", begin), row(10, "a", begin), row(70, "b", begin))
    assert hits(kafka.run(app).view("hits")) == [
        ("a", "00:00", 2, 1, "fired"),
        ("b", "01:00", 1, 1, "open"),
    ]
    kafka.send(source, row(200, "a", begin))
    kafka.run(app)
    kafka.send(source, *(row(second, "a", begin) for second in (20, 21, 199)))
    results = kafka.run(app)

    assert hits(results.view("hits")) == [
        ("a", "00:00", 2, 1, "final"),
        ("a", "03:00", 2, 2, "open"),
        ("b", "01:00", 1, 1, "final"),
    ]
    law = results.law("hits")
    assert law.holds
    assert (law.rows, law.counted, law.late) == (7, 5, 2)
    found = sorted((r["user"], r["watermark"], r["late_by"]) for r in results.topic(late))
    assert found == [("u20", begin + 190 * SECOND, 110.0), ("u21", begin + 190 * SECOND, 110.0)]


def test_what_does_not_decode_or_has_no_place_in_time_is_a_dead_letter(kafka: Runs) -> None:
    app, source = pageviews(kafka)
    app.publish(kafka.name("out"), source)
    latin = b'{"url": "\xe9", "at": "2026-01-31"}'
    sent = [
        row(1), b"garbage", None, b"", b"null", b"[1]", b"\xff\xfe", b'{"url": "a"}',
        b'{"url": "a", "at": "yesterday"}', row(10**9), latin,
    ]  # fmt: skip
    kafka.send(source, *sent, partition=1)
    results = kafka.run(app)
    law = results.law(kafka.name("out"))
    assert law.holds
    assert (law.rows, law.counted, law.dead, law.tombstones) == (11, 1, 9, 1)
    ahead = '{"url":"a","user":"u1000000000","at":"2057-09-09T01:46:40+00:00"}'
    assert letters(results, app.name) == [
        (1, 1, "does not decode", '{"value":"garbage"}'),
        (1, 3, "does not decode", '{"value":""}'),
        (1, 4, "does not decode", '{"value":"null"}'),
        (1, 5, "does not decode", '{"value":"[1]"}'),
        (1, 6, "does not decode", '{"bytes":"fffe"}'),
        (1, 7, "no event time", '{"url": "a"}'),
        (1, 8, "does not decode", '{"value":"{\\"url\\": \\"a\\", \\"at\\": \\"yesterday\\"}"}'),
        (1, 9, "ahead of the clock", ahead),
        (1, 10, "does not decode", f'{{"bytes":"{latin.hex()}"}}'),
    ]


def test_a_dead_letter_may_be_twice_as_large_as_its_record(kafka: Runs) -> None:
    app, source = pageviews(kafka)
    app.publish(kafka.name("out"), source)
    kafka.send(source, b"\xff" * 900_000, row(1), partition=0)
    results = kafka.run(app)
    law = results.law(kafka.name("out"))
    assert (law.rows, law.counted, law.dead) == (2, 1, 1)
    text = '{"bytes":"' + "ff" * 900_000 + '"}'
    assert letters(results, app.name) == [(0, 0, "does not decode", text)]


def test_bytes_are_rows_as_they_are_with_the_time_of_their_arrival(kafka: Runs) -> None:
    app = hr.App(kafka.name("app"))
    lines = app.topic(
        kafka.name("lines"),
        schema="line string not null, at timestamp",
        event_time="at",
        settings={"format": "bytes", "missing_time": "arrival"},
    )
    words = hr.derive(lines, first="split(line, ' ')[0]", length="length(line)")
    app.publish(out := kafka.name("out"), words)
    hits = hr.aggregate(
        lines, by=[], window=hr.tumbling(60 * SECOND), lateness=LATENESS, lines=hr.count()
    )
    app.view("hits", hits)
    kafka.send(lines, b"GET /a", "GÖT /b".encode(), b"", b"\xff\x00", None)
    results = kafka.run(app)
    assert sorted((r["first"], r["length"]) for r in results.topic(out)) == [
        ("", 0), ("GET", 6), ("GÖT", 6)
    ]  # fmt: skip
    (record,) = [r for b in kafka.log.read(lines.topic.name, stop=Offset(1)) for r in b.records()]
    assert record.timestamp in [found["at"] for found in results.topic(out)]
    assert sum(r["lines"] for r in results.view("hits")) == 3
    for step in (out, "hits"):
        law = results.law(step)
        assert law.holds
        assert (law.rows, law.counted, law.dead, law.tombstones) == (5, 3, 1, 1)
    assert {letter[2:] for letter in letters(results, app.name)} == {
        ("does not decode", '{"bytes":"ff00"}')
    }


def test_bytes_have_no_time_of_their_own(kafka: Runs) -> None:
    with pytest.raises(InvalidSetting, match="hold no event time") as found:
        kafka.log.create_topic(
            kafka.name("lines"),
            schema="line string not null, at timestamp",
            event_time="at",
            settings={"format": "bytes"},
        )
    assert "missing_time=arrival" in str(found.value.hint)


def test_a_row_without_a_time_can_have_that_of_its_arrival(kafka: Runs) -> None:
    app, source = pageviews(kafka, missing_time="arrival")
    app.publish(out := kafka.name("out"), source)
    kafka.send(source, b'{"url": "a"}', b"garbage")
    results = kafka.run(app)
    (record,) = [r for b in kafka.log.read(source.topic.name, partitions=[0]) for r in b.records()]
    assert [found["at"] for found in results.topic(out)] == [record.timestamp]
    assert results.law(out).dead == 1


def test_rows_of_avro_are_read_and_garbage_among_them_is_found(kafka: Runs) -> None:
    app, source = pageviews(kafka, format="avro")
    per_minute = hr.aggregate(
        source, by="url", window=hr.tumbling(60 * SECOND), lateness=LATENESS, last=hr.last("user")
    )
    app.view("hits", per_minute)
    kafka.log.ensure_topic(source.topic)
    with kafka.log.producer() as producer:
        for second in (1, 5, 3):
            producer.send(source.topic.name, row(second))
        producer.send(source.topic.name, {"url": "a"})
    kafka.send(source, b"garbage", b"\x00")
    results = kafka.run(app)
    assert [(r["url"], r["last"]) for r in results.view("hits")] == [("a", "u5")]
    law = results.law("hits")
    assert law.holds
    assert (law.counted, law.dead) == (3, 3)
    reasons = [reason for _, _, reason, _ in letters(results, app.name)]
    assert sorted(reasons) == ["does not decode", "does not decode", "no event time"]


def test_a_session_is_judged_by_the_rows_before_it(kafka: Runs) -> None:
    app, source = pageviews(kafka, partitions=1)
    sessions = hr.aggregate(
        source, by="url", window=hr.session(30 * SECOND), lateness=LATENESS, hits=hr.count()
    )
    app.view("visits", sessions)
    app.publish(late := kafka.name("late"), sessions.late)
    kafka.send(source, row(0), row(20), row(200))
    kafka.run(app)
    kafka.send(source, row(40), row(190))
    results = kafka.run(app)
    assert hits(results.view("visits")) == [
        ("a", "00:00", 2, 1, "final"),
        ("a", "03:10", 2, 2, "open"),
    ]
    assert [r["user"] for r in results.topic(late)] == ["u40"]
    assert results.law("visits").holds


def test_by_arrival_a_row_is_judged_by_its_own_timestamp(kafka: Runs) -> None:
    app, source = pageviews(kafka, frontier="arrival", skew=None)
    per_minute = hr.aggregate(
        source, by="url", window=hr.tumbling(60 * SECOND), lateness=LATENESS, hits=hr.count()
    )
    app.view("hits", per_minute)
    app.publish(late := kafka.name("late"), per_minute.late)
    now = to_datetime(SystemClock().now())
    fresh = {"url": "a", "user": "now", "at": now}
    kafka.send(source, row(0), fresh)
    results = kafka.run(app)
    assert [r["hits"] for r in results.view("hits")] == [1]
    assert [r["user"] for r in results.topic(late)] == ["u0"]
    law = results.law("hits")
    assert law.holds
    assert (law.counted, law.late) == (1, 1)


def test_filters_explosions_and_merges_have_their_terms(kafka: Runs) -> None:
    app = hr.App(kafka.name("app"))
    schema = "k string, tags array<string>, at timestamp"
    left = app.topic(kafka.name("left"), schema=schema, event_time="at", partitions=2)
    right = app.topic(kafka.name("right"), schema=schema, event_time="at")
    both = hr.merge(
        hr.explode(hr.filter(left, "k != 'no'"), "tags", into="tag"),
        hr.derive(right, tag="k"),
        hr.derive(right, tag="'again'"),
    )
    step = hr.aggregate(
        hr.select(both, "k", "tag"),
        by="tag",
        window=hr.hopping(60 * SECOND, 30 * SECOND),
        lateness=LATENESS,
        hits=hr.count(),
    )
    app.view("tags", step)

    def one(k: str, second: int, *tags: str) -> dict[str, Any]:
        return {"k": k, "tags": list(tags), "at": BEGIN + second * SECOND}

    kafka.send(left, one("a", 1, "x", "y"), one("no", 2, "x"), one("b", 3))
    kafka.send(right, one("c", 4, "z"))
    results = kafka.run(app)
    law = results.law("tags")
    assert law.holds
    assert (law.rows, law.filtered, law.counted) == (4, 1, 8)
    kafka.send(left, one("a", 5, "x"))  # and nothing to the other topic
    results = kafka.run(app)
    found = {(r["tag"], r["window_start"][11:]): r["hits"] for r in results.view("tags")}
    assert found[("x", "00:00:00")] == 2
    assert found[("again", "00:00:00")] == 1
    assert results.law("tags").counted == 10
