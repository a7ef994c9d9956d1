"""Pipelines that go by commits, on Kafka: what they need is landed, and the rest is as ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import streams as hr
from headrace.clock import VirtualClock
from headrace.engine.crash import Reach, nothing
from headrace.engine.frames import Portions
from headrace.log import Log, open_log
from headrace.runner import Run
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


def run(app: hr.App, log: Log, *, max_rows: int = 1_000, reach: Reach = nothing) -> Results:
    """Run an application until it has caught up; its results are beside what has landed."""
    with Run(
        app, log, until_caught_up=True, spark=shuffling(2), portions=Portions(max_rows), reach=reach
    ) as running:
        running.wait()
        return Results(running.reads, app.name, tuple(running.progress()))


def test_joins_and_lookups_on_kafka_are_the_oracles(url: str) -> None:
    with open_log(url) as log:
        app = declare("landed")
        feed(ScriptedLog(log, VirtualClock(NOW)), app, 1, 20)
        found = judge(app, run(app, log))
        assert all(found.values())
