"""Real time on a Spark cluster, whose executors start some seconds after the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.clock import SystemClock, to_datetime
from headrace.log import open_log
from headrace.servers.kafka import ClusterState
from headrace.servers.spark_cluster import Standalone
from tests.live import Live, rows_in

pytestmark = [pytest.mark.service, pytest.mark.slow]

APP = """
import headrace as hr

app = hr.App("afar")
visits = app.topic("afar.visits", schema="page string, at timestamp", event_time="at")
app.publish("afar.out", hr.filter(visits, "page <> 'bot'"))

crowd = hr.App("crowd")
many = crowd.topic(
    "crowd.visits", schema="page string, at timestamp", event_time="at", partitions=3
)
crowd.publish("crowd.out", many)
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standalone]:
    """One worker with two cores, which is too few for any topic."""
    with Standalone(tmp_path / "spark", workers=1, cores=2, memory="2g") as made:
        monkeypatch.setenv("HEADRACE_MASTER", made.url)
        yield made


def test_an_application_waits_for_cores_and_is_refused_where_there_are_too_few(
    broker: ClusterState, cluster: Standalone, tmp_path: Path
) -> None:
    file = tmp_path / "afar_app.py"
    file.write_text(APP)
    with Live(f"{file}:app", broker.url, tmp_path) as live, open_log(broker.url) as log:
        live.start()
        live.until(lambda: any((cluster.folder / "work").glob("app-*")))
        cluster.add_worker()
        live.until(lambda: "afar.out" in {topic.name for topic in log.topics()})
        at = to_datetime(SystemClock().now())
        with log.producer() as producer:
            producer.send("afar.visits", {"page": "bot", "at": at})
            producer.send("afar.visits", {"page": "a", "at": at})
        live.until(lambda: [row["page"] for row in rows_in(log, "afar.out")] == ["a"])
        assert live.stop().keys() == {"afar.out"}

    with Live(f"{file}:crowd", broker.url, tmp_path) as live:
        assert "Spark can run 4 tasks at once, and real time needs 5" in live.refused()
