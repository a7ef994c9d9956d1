"""Every test of the suite runs once on each kind of log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.log import Log
from headrace.servers.kafka.state import ClusterState
from tests import kafka
from tests.conformance import on_kafka
from tests.conformance.backends import BACKENDS, Backend
from tests.conformance.stage import Stage


@pytest.fixture(scope="session")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterState]:
    """A broker for this process alone, so that each test starts with an empty log."""
    with kafka.running(tmp_path_factory.mktemp("kafka"), 1, **on_kafka.BROKER) as cluster:
        yield cluster.state()


@pytest.fixture(
    params=[*BACKENDS, pytest.param(on_kafka.KafkaBackend, marks=pytest.mark.service)],
    ids=lambda backend: backend.name,
)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    made: Backend = request.param.begin(request, tmp_path)
    yield made
    made.close()


@pytest.fixture
def stage(backend: Backend) -> Stage:
    return Stage(backend, backend.open())


@pytest.fixture
def log(stage: Stage) -> Log:
    return stage.log
