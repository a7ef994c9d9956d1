"""Every test of the suite runs once on each kind of source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.sources.sqlite import SqliteStage
from tests.conformance.sources.stage import Stage

STAGES: tuple[type[Stage], ...] = (SqliteStage,)
"""The kinds of sources. One that needs a server marks itself: `pytest.param(..., marks=...)`."""


@pytest.fixture(params=STAGES, ids=lambda stage: stage.name)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    made: Stage = request.param(tmp_path)
    yield made
    made.close()
