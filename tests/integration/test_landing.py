"""Pipelines that go by commits, on Kafka: what they need is landed, and the rest is as ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace import streams as hr
from headrace.clock import VirtualClock
from headrace.engine.crash import Reach, nothing
from headrace.engine.frames import Portions
from headrace.landing.landings import landed_log
from headrace.log import Log, open_log
from headrace.runner import Run, StepProgress
from headrace.streams.stream import Source
from headrace.testing import Results, ScriptedLog
from tests import kafka
from tests.recovery.joined import NOW, declare, feed, judge
from tests.spark import shuffling

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: the topics have the names that pipelines give them."""
    with kafka.running(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster.state().url


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))


class Script(ScriptedLog):
    """Writes to Kafka what is written to an embedded log, and lives in real time."""

    def __init__(self, log: Log) -> None:
        super().__init__(log, VirtualClock(NOW))

    def write(
        self, topic: str | Source, *rows: Mapping[str, Any], at: datetime | None = None
    ) -> int:
        name = topic if isinstance(topic, str) else self.log.ensure_topic(topic.topic).name
        with self.log.producer() as producer:
            for row in rows:
                producer.send(name, dict(row))
        return 0


def run(
    app: hr.App, log: Log, *, max_rows: int = 1_000, reach: Reach = nothing
) -> tuple[StepProgress, ...]:
    """Run an application until it has caught up."""
    portions = Portions(max_rows)
    with Run(
        app, log, until_caught_up=True, spark=shuffling(2), portions=portions, reach=reach
    ) as running:
        running.wait()
        return tuple(running.progress())


def judged(app: hr.App, log: Log, progress: tuple[StepProgress, ...]) -> dict[str, Counter[str]]:
    """Compare what is on Kafka with what the oracle makes of the landed topics."""
    with landed_log(log, app.name, app.topics.values()) as landed:
        return judge(app, Results(landed, app.name, progress))


def test_joins_and_lookups_on_kafka_are_the_oracles(url: str) -> None:
    with open_log(url) as log:
        app = declare("landed")
        for seed in range(2):
            feed(Script(log), app, seed, 15, begin=seed * 15)
            progress = run(app, log)
        found = judged(app, log, progress)
        assert all(found.values())
