"""Personal fields in pipelines: sealed by default, opened with the keys, forgotten like others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
import headrace.eventsourcing as es
from headrace.log import Log, open_log
from tests.customers import Order, Register, customers
from tests.integration.test_event_streams import rows
from tests.spark import shared
from tests.unit.eventsourcing.test_keys import files_with

SHOP = customers()
(CUSTOMER,) = SHOP.aggregates
NAME, WHY = "Jane Qwertzu", "Yxcvbn called"


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[es.KeyStore]:
    with es.KeyStore(tmp_path / "keys" / "people.db") as keys:
        yield keys


@pytest.fixture
def log(tmp_path: Path, keys: es.KeyStore) -> Iterator[Log]:
    """A log with two customers who have ordered, one of them forgotten."""
    with open_log(f"file:{tmp_path}/log") as log, SHOP.open(log, keys=keys) as store:
        for id, name in (("c-7", NAME), ("c-8", "Eve Gone")):
            store.handle(CUSTOMER, id, Register(name, None), metadata={"why": WHY})
            store.handle(CUSTOMER, id, Order("book", f"Paul of {id}", "f-1"))
        keys.forget("customer/c-8")
        yield log


def published(log: Log, keys: es.KeyStore | None) -> list[dict[str, Any]]:
    app = hr.App("app", log=log.url)
    app.publish("seen", SHOP.stream(app, keys=keys))
    (progress,) = hr.run(app, log, spark=shared())
    assert progress.law.holds
    return rows(log, "seen")


def test_a_stream_has_personal_fields_sealed_and_who_has_the_keys_opens_them(
    log: Log, keys: es.KeyStore, tmp_path: Path
) -> None:
    seen = published(log, None)
    names = [row["name"] for row in seen if row["type"] == "customer-registered"]
    assert [keys.open(name) for name in names] == [NAME, None]
    for secret in (NAME, WHY, "Paul of"):
        assert files_with(tmp_path, secret.encode()) == []


def test_a_stream_with_the_keys_has_the_fields_as_they_were(log: Log, keys: es.KeyStore) -> None:
    seen = published(log, keys)
    found = [(row["type"], row["name"], row["gift_for"], dict(row["metadata"])) for row in seen]
    assert found == [
        ("customer-registered", NAME, None, {"why": WHY}),
        ("item-ordered", None, "Paul of c-7", {}),
        ("customer-registered", es.FORGOTTEN, None, {"why": es.FORGOTTEN}),
        ("item-ordered", None, "Paul of c-8", {}),
    ]


def test_an_event_with_a_moved_field_is_a_dead_letter_that_stays_sealed(
    log: Log, keys: es.KeyStore
) -> None:
    first, *_ = rows(log, SHOP.events.name)
    stolen = {**first, "aggregate": "customer/c-9"}
    with log.producer() as producer:
        batch = pa.RecordBatch.from_pylist([stolen], SHOP.events.schema)
        producer.append(SHOP.events.name, batch)
    assert len(published(log, keys)) == 4
    (dead,) = rows(log, "app.dead")
    assert "moved from another place" in dead["reason"] and NAME not in dead["row"]
