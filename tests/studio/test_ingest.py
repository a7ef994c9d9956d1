"""A way in over HTTP: what is answered with 2xx is in the log, once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headrace.log import Log, open_log
from headrace.studio.live import ingest
from headrace.studio.live.ingest import REQUESTS, WayIn
from tests.studio.logs import client_of, log_at

GOOD = '{"user": "a", "n": 1}'


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with log_at(tmp_path) as log:
        log.create_topic("orders", partitions=2, schema="user string, n bigint", key="user")
        log.create_topic("raw")
        yield log


@pytest.fixture
def client(log: Log) -> Iterator[TestClient]:
    with client_of(log) as client:
        yield client


def _rows(log: Log, topic: str = "orders") -> list[Any]:
    """The records as a process sees them that opens the log now."""
    with open_log(log.url, create=False) as opened:
        return [record.value for batch in opened.read(topic) for record in batch.records()]


def _post(client: TestClient, *lines: str, key: str | None = None, topic: str = "orders") -> Any:
    headers = {} if key is None else {"idempotency-key": key}
    return client.post(f"/api/topics/{topic}", content="\n".join(lines), headers=headers)


def test_rows_are_in_the_log_after_a_2xx(log: Log, client: TestClient) -> None:
    answer = _post(client, GOOD, "", '{"user": "b", "n": 2}', "")
    assert (answer.status_code, answer.json()) == (200, {"written": 2, "rejected": []})
    assert sorted(row["n"] for row in _rows(log)) == [1, 2]


def test_a_request_is_one_commit(log: Log, client: TestClient) -> None:
    before = log.head()
    _post(client, *(json.dumps({"user": f"u{n}", "n": n}) for n in range(500)), key="k")
    [found] = log.commits("orders", before, 10)
    assert found.rows == 500
    assert log.commits(REQUESTS, before, 10)[0].number == found.number


def test_bad_rows_are_answered_one_by_one(log: Log, client: TestClient) -> None:
    lines = (GOOD, "{", '{"user": "a", "n": "x"}', '{"user": "a", "m": 1}', '{"n": 1}', "[]", GOOD)
    answer = _post(client, *lines)
    assert (answer.status_code, answer.json()["written"]) == (200, 2)
    rejected = answer.json()["rejected"]
    assert [each["line"] for each in rejected] == [2, 3, 4, 5, 6]
    assert all(each["error"] for each in rejected)
    assert len(_rows(log)) == 2


@pytest.mark.parametrize("body", ["", "\n \n", "{", '{"user": "a", "n": "x"}\n{}'])
def test_without_a_good_row_nothing_is_written(log: Log, client: TestClient, body: str) -> None:
    before = log.head()
    answer = _post(client, body)
    assert (answer.status_code, answer.json()["written"]) == (400, 0)
    assert log.head() == before


def test_a_raw_topic_takes_keys_bytes_and_headers(log: Log, client: TestClient) -> None:
    line = '{"key": "k", "value": {"base64": "AP8="}, "headers": {"trace": "1"}}'
    assert _post(client, line, topic="raw").json()["written"] == 1
    [record] = [record for batch in log.read("raw") for record in batch.records()]
    assert (record.key, record.value, record.headers) == (b"k", b"\0\xff", (("trace", b"1"),))


def test_the_same_key_has_one_effect_and_the_same_answer(log: Log, client: TestClient) -> None:
    first = _post(client, GOOD, "{", key="order-1")
    second = _post(client, GOOD, "{", key="order-1")
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert len(_rows(log)) == 1


def test_another_studio_knows_the_key_too(log: Log, client: TestClient) -> None:
    with client_of(log) as other:
        for number in range(3):
            for each in (client, other, client):
                answer = _post(each, json.dumps({"user": "a", "n": number}), key=f"k{number}")
                assert answer.json()["written"] == 1
    with client_of(log) as restarted:
        _post(restarted, '{"user": "a", "n": 0}', key="k0")
    assert sorted(row["n"] for row in _rows(log)) == [0, 1, 2]


def test_requests_at_once_with_one_key_write_once(log: Log) -> None:
    ways = [WayIn(), WayIn()]

    def send(number: int) -> Any:
        key, body = f"k{number % 5}", json.dumps({"user": "a", "n": number % 5}).encode()
        return ways[number % 2].write(log, "orders", body, key)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(send, range(40)))
    assert {answer.status for answer in answers} == {200}
    assert sum(not answer.replayed for answer in answers) == 5
    assert Counter(row["n"] for row in _rows(log)) == dict.fromkeys(range(5), 1)


def test_a_key_with_other_rows_is_refused(log: Log, client: TestClient) -> None:
    _post(client, GOOD, key="k")
    answer = _post(client, '{"user": "b", "n": 2}', key="k")
    assert (answer.status_code, "another body" in answer.json()["error"]) == (409, True)
    assert len(_rows(log)) == 1


def test_keys_of_two_topics_are_two(log: Log, client: TestClient) -> None:
    line = '{"value": "v"}'
    assert _post(client, GOOD, key="k").json()["written"] == 1
    assert _post(client, line, key="k", topic="raw").json()["written"] == 1


def test_a_request_without_a_good_row_leaves_its_key_free(log: Log, client: TestClient) -> None:
    assert _post(client, "{", key="k").status_code == 400
    assert _post(client, GOOD, key="k").json()["written"] == 1


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb"])
def test_a_bad_key_is_refused_in_words(log: Log, client: TestClient, key: str) -> None:
    answer = _post(client, GOOD, key=key)
    assert (answer.status_code, "Idempotency-Key" in answer.json()["error"]) == (400, True)
    assert _rows(log) == []


def test_a_body_over_the_limit_is_refused(log: Log, client: TestClient) -> None:
    whole = client.post("/api/topics/raw", content=b"x" * (ingest.MOST_BYTES + 1))
    streamed = client.post(
        "/api/topics/raw", content=(b"x" * (1 << 20) for _ in range(17)), headers={}
    )
    assert {whole.status_code, streamed.status_code} == {413}
    assert "16,777,216 bytes" in whole.json()["error"]


def test_too_many_lines_are_refused(
    log: Log, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MOST_ROWS", 3)
    assert _post(client, *([GOOD] * 4), "").status_code == 413
    assert _post(client, *([GOOD] * 3), "").json()["written"] == 3


def test_an_unknown_topic_is_answered_in_words(client: TestClient) -> None:
    answer = _post(client, GOOD, topic="nowhere")
    assert (answer.status_code, "nowhere" in answer.json()["error"]) == (404, True)


def test_nothing_is_written_without_the_token(log: Log, client: TestClient) -> None:
    headers = {"authorization": "Bearer wrong"}
    assert client.post("/api/topics/orders", content=GOOD, headers=headers).status_code == 401
    assert _rows(log) == []


def test_the_page_shows_a_line_for_curl(log: Log, client: TestClient) -> None:
    page = client.get("/topics/orders").text
    assert "Authorization: Bearer $TOKEN" in page
    assert "/api/topics/orders" in page
