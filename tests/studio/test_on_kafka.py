"""The studio on a broker: every page answers, and what a broker lacks is said in words."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from headrace.errors import Unsupported
from headrace.log import Log, open_log
from headrace.servers.kafka.state import ClusterState
from headrace.studio.live.crashing import Crashes
from headrace.studio.live.handles import Handles
from headrace.studio.live.processes import Processes
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings
from tests.studio.piped import APP, TOKEN, pageviews, settings_of, visits
from tests.waiting import wait_until

pytestmark = pytest.mark.service

GROUP = "billing"
PATHS = [
    *("/", "/dashboard", "/pipelines", f"/pipelines/{APP}"),
    *("/views", "/views/query?sql=select+1", "/topics", "/topics/{topic}", "/groups"),
    *("/topics/{topic}?partition=0&at=3", "/topics/{topic}?text=u1", "/groups/{group}"),
    *("/sources", "/stores", "/learn", "/learn/your-data?topic={topic}", "/api", "/metrics"),
    *("/api/topics", "/api/topics/{topic}/records", "/api/groups/{group}", "/healthz"),
]


@pytest.fixture(scope="module")
def log(broker: ClusterState) -> Iterator[Log]:
    with open_log(broker.url) as log:
        yield log


@pytest.fixture(scope="module")
def topic(log: Log) -> str:
    """A topic with 200 page views, of which a group has read some."""
    name = f"pageviews-{uuid.uuid4().hex[:8]}"
    log.ensure_topic(replace(pageviews().topics["pageviews"], name=name))
    with log.producer() as producer:
        for row in visits(200):
            producer.send(name, row)
    with log.consumer(name, group=f"{GROUP}-{name}", commit="manual") as consumer:
        assert consumer.poll(timedelta(seconds=30))
        consumer.commit()
    return name


@pytest.fixture(scope="module")
def settings(log: Log, tmp_path_factory: pytest.TempPathFactory) -> StudioSettings:
    return settings_of(log, tmp_path_factory.mktemp("kafka-studio"))


@pytest.fixture(scope="module")
def client(settings: StudioSettings) -> Iterator[TestClient]:
    with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:
        yield client


def test_every_page_answers_without_an_error(client: TestClient, topic: str) -> None:
    for path in PATHS:
        answer = client.get(path.format(topic=topic, group=f"{GROUP}-{topic}"))
        assert answer.status_code == 200, (path, answer.text[:500])
        assert 'role="alert"' not in answer.text, path


def test_what_a_broker_lacks_is_said_in_words(client: TestClient, topic: str) -> None:
    overview = client.get("/").text
    assert "The past is shown of embedded logs only" in overview
    assert 'name="asof"' not in overview
    past = client.get(f"/topics/{topic}?asof=2")
    assert (past.status_code, "does not have appends that are commits" in past.text) == (400, True)
    unknown = client.get(f"/topics/{topic}-nowhere")
    assert (unknown.status_code, "There is no topic" in unknown.text) == (404, True)


def test_rows_are_written_once_for_each_key(client: TestClient, log: Log, topic: str) -> None:
    row = '{"url": "/new", "user": "u", "at": "2026-01-01T12:00:00Z"}'
    for _ in range(2):
        answer = client.post(
            f"/api/topics/{topic}", content=row, headers={"idempotency-key": f"one-{topic}"}
        )
        assert (answer.status_code, answer.json()["written"]) == (200, 1)
    urls = [row["url"] for batch in log.read(topic) for row in batch.data.to_pylist()]
    assert urls.count("/new") == 1


def test_nothing_is_killed_where_there_cannot_be_a_receipt(settings: StudioSettings) -> None:
    with Handles(settings) as handles, Processes(settings) as processes:
        started = processes.start(APP)
        with pytest.raises(Unsupported):
            Crashes(handles, processes).crash(APP)
        assert started.alive


def test_an_application_starts_and_stops(client: TestClient) -> None:
    def state() -> str:
        found = re.search(r'class="badge[^"]*">([^<]*)<', client.get(f"/pipelines/{APP}").text)
        return found[1] if found else ""

    assert client.post(f"/pipelines/{APP}/start").status_code == 200
    wait_until(lambda: state() in ("starting", "running", "failed"))
    assert client.post(f"/pipelines/{APP}/stop").status_code == 200
    wait_until(lambda: state() not in ("starting", "running", "stopping"))
