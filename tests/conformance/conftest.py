"""Every test of the suite runs once on each kind of log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.log import Log
from tests.conformance.backends import BACKENDS, Backend
from tests.conformance.stage import Stage


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    made: Backend = request.param(tmp_path)
    yield made
    made.close()


@pytest.fixture
def stage(backend: Backend) -> Stage:
    return Stage(backend, backend.open())


@pytest.fixture
def log(stage: Stage) -> Log:
    return stage.log
