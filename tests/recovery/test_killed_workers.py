"""kill -9 of the workers of a cluster, while a pipeline runs on it."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.standalone import Standalone
from headrace.testing import scripted_log
from tests.integration import processes
from tests.recovery.pipeline import NOW, create_topic
from tests.recovery.test_killed_pipelines import check, victim_of
from tests.recovery.victim import Cluster

pytestmark = [pytest.mark.service, pytest.mark.slow]

ASK = """
import json, sys
from headrace.engine.session import SparkSettings, spark_session
spark = spark_session(SparkSettings(master=sys.argv[1], memory="512m", brief=True))
asked = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("headrace").__file__)
print(json.dumps(asked.collect()))
"""


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
    for library, there in (("pyspark", True), ("headrace.errors", False)):
        tried = subprocess.run(
            [wrapper, "-c", f"import {library}"], cwd=tmp_path, capture_output=True, check=False
        )
        assert (tried.returncode == 0) is there, tried.stderr
    return str(wrapper)


@pytest.fixture
def cluster(tmp_path: Path, python: str) -> Iterator[Standalone]:
    with Standalone(tmp_path / "spark", workers=2, memory="1g", python=python) as cluster:
        yield cluster


def test_workers_run_the_headrace_that_was_sent(
    cluster: Standalone, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    process = processes.python(ASK, cluster.url)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    (place,) = json.loads(out)
    assert ".zip/headrace/__init__.py" in place


def test_a_worker_killed_in_the_middle_changes_nothing(
    tmp_path: Path, cluster: Standalone, python: str
) -> None:
    folder = tmp_path / "log"
    with scripted_log(folder, start=NOW) as log:
        create_topic(log)
        victim = victim_of(log, folder, 1, "small", Cluster(cluster.url, python))
        victim.run_while(6, lambda: cluster.kill(0))
        check(log, "small")
