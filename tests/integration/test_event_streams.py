"""Streams of a domain's events: current versions, and no event is skipped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
import headrace.eventsourcing as es
from headrace.errors import ChangedPipeline, InvalidPipeline
from headrace.eventsourcing.codec import Data
from headrace.log import Log, open_log
from tests.spark import shared

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AT_ONCE = hr.Lateness(delay=timedelta(0), grace=timedelta(0))


@dataclass(frozen=True)
class Opened:
    owner: str


@dataclass(frozen=True)
class Deposited:
    amount: int
    currency: str


def cents(data: Data) -> Data:
    return {"amount": round(data["euros"] * 100)}


opened = es.event("opened", Opened)
deposited = es.event(
    "deposited",
    Deposited,
    version=3,
    upcast={1: [es.upcast(cents)], 2: [es.default("currency", "EUR")]},
)
account = es.aggregate(
    "account",
    initial=Opened(""),
    decide=lambda state, command: (),
    evolve=lambda state, event: state,
    events=[opened, deposited],
)
bank = es.Domain("bank", [account])

STORED = (
    ("opened", 1, '{"owner": "mia"}'),
    ("deposited", 1, '{"euros": 1.5}'),
    ("deposited", 2, '{"amount": 7}'),
    ("deposited", 3, '{"amount": 5, "currency": "CHF"}'),
    ("deposited", 1, '{"dollars": 1}'),
    ("deposited", 3, '{"amount": 5, "currency": 1}'),
    ("deposited", 4, "{}"),
    ("opened", 1, "gone"),
    ("withdrawn", 1, '{"amount": 1}'),
)


def append(log: Log, *events: tuple[str, int, str]) -> None:
    """Append events to the topic as they are, in a commit each."""
    log.ensure_topic(bank.events)
    with log.producer() as producer:
        for number, (name, schema, data) in enumerate(events, 1):
            row = {
                "aggregate": "account/a-1", "version": number, "type": name, "schema": schema,
                "at": NOW, "id": f"{number}:0", "command": str(number), "metadata": [],
                "tags": [f"type:{name}"], "data": data,
            }  # fmt: skip
            producer.append(bank.events.name, pa.RecordBatch.from_pylist([row], bank.events.schema))


def rows(log: Log, topic: str) -> list[dict[str, Any]]:
    return [row for batch in log.read(topic) for row in batch.data.to_pylist()]


def test_events_are_read_in_their_current_version_or_are_dead_letters(tmp_path: Path) -> None:
    app = hr.App("app", log=f"file:{tmp_path}/log")
    app.publish("deposits", bank.stream(app, "deposited"))
    # Two paths from the topic: a bad deposit is refused on one of them, and filtered on the other.
    parts = [
        hr.select(bank.stream(app, name), "aggregate", "at") for name in ("deposited", "opened")
    ]
    day = hr.tumbling(timedelta(days=1))
    counted = hr.aggregate(
        hr.merge(*parts), by="aggregate", window=day, lateness=AT_ONCE, events=hr.count()
    )
    app.view("counted", counted)
    with open_log(f"file:{tmp_path}/log") as log:
        append(log, *STORED)
        progress = {one.step: one.law for one in hr.run(app, log, spark=shared())}
        deposits = rows(log, "deposits")
        dead = rows(log, "app.dead")
    assert [(row["amount"], row["currency"]) for row in deposits] == [
        (150, "EUR"), (7, "EUR"), (5, "CHF")
    ]  # fmt: skip
    assert progress["deposits"].holds and progress["counted"].holds
    assert (progress["deposits"].dead, progress["deposits"].filtered) == (4, 2)
    assert (progress["counted"].dead, progress["counted"].counted) == (5, 4)
    reasons = [row["reason"] for row in dead if row["step"] == "deposits"]
    assert reasons == [
        "The upcaster cents failed: KeyError('euros')",
        "Stored data is not a Deposited: currency: 1 is not of type str",
        "A stored 'deposited' has version 4, and this code knows versions up to 3",
        "There is no type of event 'withdrawn'",
    ]
    assert [row["offset"] for row in dead if row["step"] == "counted"] == [4, 5, 6, 7, 8]


def test_an_event_that_was_a_dead_letter_is_counted_by_a_rebuild_with_its_upcaster(
    tmp_path: Path,
) -> None:
    """It's in its topic for good, so it is not sent again: the replay reads it where it is."""
    steps = dict(enumerate(deposited.chain, 1)) | {3: [es.default("amount", 0)]}
    newer = es.event("deposited", Deposited, version=4, upcast=steps)
    fixed = es.Domain("bank", [replace(account, events=(opened, newer))])

    def declared(domain: es.Domain) -> hr.App:
        app = hr.App("app", log=f"file:{tmp_path}/log")
        deposits = domain.stream(app, "deposited")
        day = hr.tumbling(timedelta(days=1))
        amount = hr.sum("amount")
        app.view(
            "deposits",
            hr.aggregate(deposits, by="aggregate", window=day, lateness=AT_ONCE, amount=amount),
        )
        return app

    old, new = declared(bank), declared(fixed)
    with open_log(f"file:{tmp_path}/log") as log, hr.open_views(log.home) as views:
        append(log, STORED[1], ("deposited", 4, '{"currency": "EUR", "amount": 1}'))
        (before,) = hr.run(old, log, spark=shared())
        assert (before.law.counted, before.law.dead, before.law.holds) == (1, 1, True)
        with pytest.raises(ChangedPipeline):
            hr.run(new, log, spark=shared())
        rebuilt = hr.rebuild(new, "deposits", log, switch=True, spark=shared())
        assert (rebuilt.diff.changed, rebuilt.switched) == (1, True)
        assert [row["amount"] for row in views.rows("deposits")] == [151]
        (after,) = hr.run(new, log, spark=shared())
        assert (after.law.counted, after.law.dead, after.law.holds) == (2, 0, True)


def test_a_stream_names_what_cannot_be_a_column() -> None:
    app = hr.App("app")
    with pytest.raises(InvalidPipeline, match="no type of event 'withdrawn'"):
        bank.stream(app, "withdrawn")

    @dataclass(frozen=True)
    class Typed:
        type: str

    other = replace(account, name="other", events=(es.event("typed", Typed),))
    domain = es.Domain("other", [other])
    with pytest.raises(InvalidPipeline, match="the name of a column"):
        domain.stream(app)
    assert domain.stream(app, prefix="my_").columns[-1] == "my_type"
