"""Groups in the studio: members, lag now and over time, and reset."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headrace.clock import VirtualClock
from headrace.log import Log
from headrace.studio.live.histories import Histories
from tests.studio.logs import client_of, log_at


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with log_at(tmp_path) as log:
        log.create_topic("orders", partitions=2)
        with log.producer() as producer:
            for n in range(10):
                producer.send("orders", str(n), partition=n % 2)
        yield log


@pytest.fixture
def client(log: Log) -> Iterator[TestClient]:
    with client_of(log) as client:
        yield client


def _read(log: Log, records: int) -> None:
    with log.consumer("orders", group="billing", commit="manual") as consumer:
        consumer.poll(max_records=records)
        consumer.commit()


def test_a_group_shows_its_members_and_lag_by_partition(log: Log, client: TestClient) -> None:
    with log.consumer("orders", group="billing", commit="manual") as consumer:
        consumer.poll(max_records=4)
        consumer.commit()
        found = client.get("/api/groups/billing").json()
        page = client.get("/groups/billing").text
        listed = client.get("/groups").text
    assert (len(found["members"]), found["lag"]) == (1, 6)
    assert sum(each["records"] for each in found["lags"]) == 6
    assert 'data-fact="lag">6<' in page
    assert found["members"][0]["id"] in page
    assert "active" in listed
    assert client.get("/api/groups").json()[0]["members"] == 0


def test_lag_over_time_is_sampled_while_somebody_looks(log: Log, client: TestClient) -> None:
    _read(log, 4)
    page = client.get("/groups/billing").text
    found = re.search(r'data-series="([^"]*)"', page)
    assert found is not None
    series = json.loads(unescape(found[1]))
    assert series["labels"] == ["time", "lag", "orders/0", "orders/1"]
    assert series["rows"][-1][1] == 6


def test_a_second_look_within_a_second_adds_no_sample(log: Log) -> None:
    _read(log, 4)
    clock = VirtualClock(0)
    histories = Histories(clock)
    looks = []
    for millis in (0, 500, 500, 1000, 100):
        clock.advance(timedelta(milliseconds=millis))
        looks.append(len(histories.look(log.group("billing"))))
    assert looks == [1, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("form", "offsets"),
    [
        ({"to": "earliest"}, {0: 0, 1: 0}),
        ({"to": "latest"}, {0: 5, 1: 5}),
        ({"to": "latest", "at": "3"}, {0: 3, 1: 3}),
        ({"to": "latest", "at": "2000-01-01T00:00:00Z"}, {0: 0, 1: 0}),
    ],
)
def test_a_reset_moves_the_offsets_of_an_idle_group(
    log: Log, client: TestClient, form: dict[str, str], offsets: dict[int, int]
) -> None:
    _read(log, 4)
    answer = client.post("/groups/billing/reset", data={"topic": "orders", **form})
    assert (answer.status_code, "Reset 2 partitions" in answer.text) == (200, True)
    assert {lag.partition: lag.committed for lag in log.group("billing").lags} == offsets


def test_a_reset_of_an_active_group_is_refused_in_words(log: Log, client: TestClient) -> None:
    with log.consumer("orders", group="billing", commit="manual") as consumer:
        consumer.poll(max_records=4)
        consumer.commit()
        before = [lag.committed for lag in log.group("billing").lags]
        form = {"topic": "orders", "to": "latest"}
        answer = client.post("/groups/billing/reset", data=form, headers={"hx-request": "true"})
        assert (answer.status_code, "1 active members" in answer.text) == (400, True)
        assert [lag.committed for lag in log.group("billing").lags] == before


@pytest.mark.parametrize(
    ("path", "form", "message"),
    [
        ("/groups/nobody/reset", {"topic": "orders", "to": "latest"}, "nobody"),
        ("/groups/billing/reset", {"topic": "nowhere", "to": "latest"}, "nowhere"),
        ("/groups/billing/reset", {"to": "latest"}, "No topic"),
        ("/groups/billing/reset", {"topic": "orders", "at": "soon"}, "is not a position"),
        ("/groups/billing/reset", {"topic": "orders", "at": "99"}, "Offset 99 is not"),
    ],
)
def test_a_bad_reset_is_refused_in_words_and_changes_nothing(
    log: Log, client: TestClient, path: str, form: dict[str, str], message: str
) -> None:
    _read(log, 4)
    before = log.group("billing").lags
    answer = client.post(path, data=form)
    assert (answer.status_code, message in answer.text) == (400, True)
    assert [lag.committed for lag in log.group("billing").lags] == [lag.committed for lag in before]
    assert log.groups() == ["billing"]


def test_a_reset_asks_first(log: Log, client: TestClient) -> None:
    _read(log, 4)
    assert "data-confirm" in client.get("/groups/billing").text


def test_an_unknown_group_is_answered_in_words(client: TestClient) -> None:
    answer = client.get("/groups/nobody")
    assert (answer.status_code, "nobody" in answer.text) == (404, True)


def test_a_read_only_studio_resets_nothing(log: Log) -> None:
    _read(log, 4)
    with client_of(log, read_only=True) as client:
        answer = client.post("/groups/billing/reset", data={"topic": "orders", "to": "latest"})
        assert answer.status_code == 403
        assert "hx-post" not in client.get("/groups/billing").text
    assert log.group("billing").lag == 6
