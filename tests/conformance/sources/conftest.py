"""Every test of the suite runs once on each kind of source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.conformance.sources.mariadb import MariadbStage
from tests.conformance.sources.postgres import PostgresStage
from tests.conformance.sources.sqlite import SqliteStage
from tests.conformance.sources.stage import Stage

STAGES: tuple[type[Stage], ...] = (SqliteStage, PostgresStage, MariadbStage)
"""The kinds of sources."""


def _parameter(stage: type[Stage]) -> ParameterSet:
    marks = [pytest.mark.service] if stage.needs else []
    return pytest.param(stage, marks=marks, id=stage.name)


@pytest.fixture(params=map(_parameter, STAGES))
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    made: Stage = request.param(tmp_path, *map(request.getfixturevalue, request.param.needs))
    yield made
    made.close()
