"""Your own data: late rows and the time to a result are those of the log and the oracle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headrace.log import open_log
from headrace.studio.learn import own_data
from headrace.studio.learn.own_data import Chosen, costs, read
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings
from tests.studio.viewed import arrive, hit, pageviews, write

_, TOPIC = pageviews()
ARRIVALS = (
    (1, hit("/a", 0)),
    (65, hit("/a", 62)),
    (66, hit("/late", 55)),  # 7 s behind the frontier, its window ended 2 s before it
    (90, hit("/a", 85)),
    (92, hit("/later", 40)),  # its window ended 25 s before the frontier
    (200, hit("/a", 190)),
)
PAGE = "/learn/your-data"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    url = arrive(tmp_path_factory.mktemp("log"), TOPIC, *ARRIVALS)
    with open_log(url) as log:
        log.create_topic("bytes")
    settings = StudioSettings(log=url, token="t")
    bearer = {"authorization": "Bearer t"}
    with TestClient(studio(settings), base_url=settings.origin, headers=bearer) as client:
        yield client


def test_a_longer_delay_loses_fewer_rows_and_takes_longer(tmp_path: Path) -> None:
    url = arrive(tmp_path, TOPIC, *ARRIVALS)
    with open_log(url) as log:
        found = read(log, "pageviews")
    made = costs(Chosen("pageviews", "tumbling", 60, 5, 0), found)
    assert {cost.delay: cost.late for cost in made} == {0: 2, 1: 2, 5: 1, 10: 1, 30: 0}
    waits = [cost.wait for cost in made if cost.wait is not None]
    assert waits == sorted(waits)
    # With a delay of 5 s, the first window fires at 90 s and the second at 200 s.
    assert next(cost.wait for cost in made if cost.delay == 5) == (30 + 80) / 2


def test_the_page_shows_the_numbers_of_the_api(client: TestClient) -> None:
    for query in ("", "?delay=0", "?delay=0&grace=60", "?window=session&size=10"):
        given = client.get(f"/api{PAGE}{query}").json()["numbers"]
        shown = dict(re.findall(r'data-fact="([^"]*)">([^<]*)<', client.get(PAGE + query).text))
        assert shown == {name: str(value) for name, value in given.items()}
        assert given["counted"] + given["late"] == 6


def test_only_topics_with_an_event_time_can_be_chosen(client: TestClient) -> None:
    assert re.findall(r'<option value="(\w+)"', client.get(PAGE).text)[0] == "pageviews"
    assert '<option value="bytes"' not in client.get(PAGE).text


@pytest.mark.parametrize(
    "query", ["topic=bytes", "topic=<script>", "delay=-1", "delay=x", "window=no", "size=7"]
)
def test_a_wrong_choice_is_explained(client: TestClient, query: str) -> None:
    answer = client.get(f"{PAGE}?{query}")
    assert (answer.status_code, 'role="alert"' in answer.text) == (400, True)
    assert "<script>" not in answer.text


def test_only_the_newest_rows_are_read_even_of_one_commit(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_data, "ROWS", 2)
    assert client.get(f"/api{PAGE}").json()["numbers"]["rows read"] == 2
    app, topic = pageviews()
    with open_log(write(tmp_path, app, topic, [hit("/a", n) for n in range(5)])) as log:
        assert [event.offset for event in read(log, "pageviews").events] == [3, 4]


def test_the_list_of_simulations_leads_to_it(client: TestClient) -> None:
    assert f'href="{PAGE}"' in client.get("/learn").text
