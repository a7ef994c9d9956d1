"""The outbox: events in a table, routed to topics by the type of their aggregate, each once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.cdc.capture import Capture
from headrace.cdc.outbox import Outbox
from headrace.cdc.running import run
from headrace.cdc.sqlite.source import SqliteSource
from headrace.errors import InvalidSetting, UnknownTopic, UserError
from headrace.log import Log, open_log

POINTS = ("read", "resolved", "encoded", "committed", "copied", "acknowledged")


class Killed(Exception):
    """The end of a capture at a crash point."""


class Service:
    """A service that writes events beside its rows, and the log that they are captured into."""

    def __init__(self, folder: Path, log: Log) -> None:
        self.log = log
        self.path = folder / "shop.db"
        self._next = 0
        with self._db() as db:
            db.execute("CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregatetype TEXT, "
                       "aggregateid TEXT, type TEXT, payload TEXT)")  # fmt: skip

    def _db(self) -> Any:
        return closing(sqlite3.connect(self.path, isolation_level=None))

    def publish(self, kind: str | None, *keys: str, delete: bool = False) -> None:
        """Insert an event per key, in one transaction, and perhaps delete them at once."""
        with self._db() as db:
            db.execute("BEGIN")
            for key in keys:
                self._next += 1
                payload = json.dumps({"n": self._next})
                event = (str(self._next), kind, key, "Placed", payload)
                db.execute("INSERT INTO outbox VALUES (?, ?, ?, ?, ?)", event)
                if delete:
                    db.execute("DELETE FROM outbox WHERE id = ?", (str(self._next),))
            db.execute("COMMIT")

    def execute(self, sql: str) -> None:
        with self._db() as db:
            db.execute(sql)

    def capture(self, outbox: Outbox | None = None, **settings: Any) -> None:
        with closing(SqliteSource(self.path)) as source:
            run(
                source,
                self.log,
                "shop",
                outbox=outbox or Outbox(),
                until_caught_up=True,
                **settings,
            )

    def events(self, kind: str) -> list[tuple[str, int]]:
        """The key and the number of each event in a topic, in order."""
        try:
            batches = list(self.log.read(f"shop.outbox.{kind}"))
        except UnknownTopic:
            return []
        records = [record for batch in batches for record in batch.records()]
        return [(record.key.decode(), json.loads(record.value)["n"]) for record in records]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_log(f"file:{tmp_path / 'log'}") as log:
        yield Service(tmp_path, log)


def test_events_are_routed_by_the_type_of_their_aggregate_in_their_order(service: Service) -> None:
    service.publish("order", "1", "2")
    service.capture()  # what was there before is an event, too
    service.publish("customer", "7")
    service.publish("order", "1")
    service.capture()
    assert service.events("order") == [("1", 1), ("2", 2), ("1", 4)]
    assert service.events("customer") == [("7", 3)]
    (record,) = [r for b in service.log.read("shop.outbox.customer") for r in b.records()]
    assert record.headers == (("id", b"3"), ("type", b"Placed"))


def test_an_event_that_is_deleted_at_once_is_an_event(service: Service) -> None:
    service.capture()
    service.publish("order", "1", "2", delete=True)
    service.capture()
    assert service.events("order") == [("1", 1), ("2", 2)]


def test_a_row_that_is_changed_deleted_or_found_again_is_no_event(service: Service) -> None:
    service.publish("order", "1", "2")
    service.capture()
    service.execute("UPDATE outbox SET payload = '{}'")
    service.execute("DELETE FROM outbox WHERE id = '2'")
    service.capture(again=["main.outbox"])
    assert service.events("order") == [("1", 1), ("2", 2)]


def test_an_event_without_a_type_of_its_aggregate_has_a_topic_too(service: Service) -> None:
    service.publish(None, "1")
    service.publish("a b/c", "2")
    service.capture()
    assert service.events("_") == [("1", 1)]
    assert service.events("a_b_c") == [("2", 2)]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_neither_loses_nor_repeats_an_event(service: Service, point: str) -> None:
    service.capture()
    for _ in range(2):
        service.publish("order", "1", "2", delete=True)
        left = 2

        def die(at: str) -> None:
            nonlocal left
            left -= at == point
            if not left:
                raise Killed

        with (
            pytest.raises(Killed),
            closing(SqliteSource(service.path)) as source,
            Capture(source, service.log, "shop", outbox=Outbox(), crash_point=die) as capture,
        ):
            while True:
                service.publish("order", "3", delete=True)
                capture.step(0)
    service.capture()
    found = [number for _, number in service.events("order")]
    assert found == list(range(1, service._next + 1))


def test_columns_headers_and_topics_can_be_chosen(service: Service) -> None:
    service.execute(
        "CREATE TABLE events (key INTEGER PRIMARY KEY, kind TEXT, body BLOB, tenant INT)"
    )
    service.execute("INSERT INTO events VALUES (9, 'order', x'00ff', 5)")
    settings = {
        "table": "events", "topic": "all.{type}", "id": "key", "aggregate_type": "kind",
        "aggregate_id": "key", "type": "kind", "payload": "body", "headers": "tenant",
    }  # fmt: skip
    service.capture(Outbox.parse(settings))
    (record,) = [r for b in service.log.read("all.order") for r in b.records()]
    assert (record.key, record.value) == (b"9", b"\x00\xff")
    assert record.headers == (("id", b"9"), ("type", b"order"), ("tenant", b"5"))


def test_an_outbox_without_its_columns_is_refused_with_those_it_has(service: Service) -> None:
    service.publish("order", "1")
    with pytest.raises(UserError, match=r"no column 'body'\. It has: id, aggregatetype"):
        service.capture(Outbox(payload="body"))
    with pytest.raises(InvalidSetting, match="no setting 'paylaod'"):
        Outbox.parse({"paylaod": "x"})
    with pytest.raises(InvalidSetting, match="does not have"):
        Outbox(topic="events")
