"""kill -9 of the workers of a cluster, while a pipeline runs on it."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.standalone import Standalone
from headrace.testing import scripted_log
from tests.recovery.pipeline import NOW, create_topic
from tests.recovery.test_killed_pipelines import check, victim_of
from tests.recovery.victim import Cluster

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python that has all that headrace depends on, and neither headrace nor these tests."""
    wrapper = tmp_path / "python"
    libraries = sysconfig.get_path("purelib")
    wrapper.write_text(
        "#!/bin/sh\n"
        "# Without `site`, links to folders of source are not followed.\n"
        f'PYTHONPATH="{libraries}:$PYTHONPATH" exec {sys.executable} -S "$@"\n'
    )
    wrapper.chmod(0o755)
    return str(wrapper)


@pytest.fixture
def cluster(tmp_path: Path, python: str) -> Iterator[Standalone]:
    with Standalone(tmp_path / "spark", workers=2, memory="1g", python=python) as cluster:
        yield cluster


def test_a_worker_killed_in_the_middle_changes_nothing(
    tmp_path: Path, cluster: Standalone, python: str
) -> None:
    folder = tmp_path / "log"
    with scripted_log(folder, start=NOW) as log:
        create_topic(log)
        victim = victim_of(log, folder, 1, "small", Cluster(cluster.url, python))
        victim.run_while(6, lambda: cluster.kill(0))
        check(log, "small")
