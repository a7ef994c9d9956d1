"""kill -9 of the workers of a cluster while a pipeline runs on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.demonstration.fraud.traffic import traffic
from headrace.clock import SECOND, to_micros
from headrace.log import Log, open_log
from headrace.servers.spark_cluster import Standalone
from headrace.testing import scripted_log
from pipelines import fraud
from tests.integration import processes
from tests.recovery.pipeline import NOW, create_topic
from tests.recovery.test_killed_pipelines import check, victim_of
from tests.recovery.victim import ROOT, Cluster
from tests.waiting import left, started, wait_until

pytestmark = [pytest.mark.service, pytest.mark.slow]

ASK = """
import json, sys
from headrace.runtime.session import SparkSettings, spark_session
spark = spark_session(SparkSettings(master=sys.argv[1], memory="512m", brief=True))
asked = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("headrace").__file__)
print(json.dumps(asked.collect()))
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python with the dependencies of headrace, without headrace and these tests."""
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
    out, err = process.communicate(timeout=left())
    assert process.returncode == 0, err
    (place,) = json.loads(out)
    assert ".zip/headrace/__init__.py" in place


SHARED = """
import os, sys
from pathlib import Path
from headrace.runtime import cluster
from headrace.runtime.session import SparkSettings, spark_session
from headrace.errors import Unsupported
spark = spark_session(SparkSettings(master=sys.argv[1], memory="512m", brief=True))
cluster.is_ours = lambda host: False  # as if the workers were on other machines
cluster.require_shared(spark, Path(sys.argv[2]))
os.chdir(sys.argv[2])
try:
    cluster.require_shared(spark, Path("/proc/self/cwd/own"))
except Unsupported as error:
    print(error.hint)
"""


def test_workers_have_to_see_the_folder_that_state_is_kept_in(
    cluster: Standalone, tmp_path: Path
) -> None:
    process = processes.python(SHARED, cluster.url, str(tmp_path / "state"))
    out, err = process.communicate(timeout=left())
    assert process.returncode == 0, err
    assert "HEADRACE_STATE" in out
    assert not [path for path in (tmp_path / "state").rglob("*") if path.is_file()]


def test_a_worker_killed_in_the_middle_changes_nothing(
    tmp_path: Path, cluster: Standalone, python: str
) -> None:
    folder = tmp_path / "log"
    with scripted_log(folder, start=NOW) as log:
        create_topic(log)
        victim = victim_of(log, folder, 1, "small", Cluster(cluster.url, python))
        victim.run_while(6, lambda: cluster.kill(0))
        check(log, "small")


def test_fraud_is_flagged_all_the_same_when_a_worker_is_killed(
    tmp_path: Path, cluster: Standalone, python: str
) -> None:
    made = traffic(4_000, to_micros(NOW), 7_200 * SECOND)
    found = {}
    for where in ("here", "cluster"):
        folder = tmp_path / where
        with open_log(f"file:{folder}") as log, log.producer() as producer:
            for topic in fraud.app.topics.values():
                log.ensure_topic(topic)
            producer.append("profiles", made.profiles)
            for some in made.tables(0, 200):
                producer.append("transactions", some)
            environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
            if where == "cluster":
                environment |= {"PYSPARK_PYTHON": python, "HEADRACE_MASTER": cluster.url}
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "headrace.cli.main", "run", "pipelines/fraud.py:app"),
                    *("--log", log.url, "--memory", "1g", "--until-caught-up", "--json"),
                    *("--max-commits", "2"),
                ],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
            started(process)
            if where == "cluster":
                wait_until(partial(alerts_of, log))
                assert process.poll() is None, "it was over before anything could happen"
                cluster.kill(0)
            out, err = process.communicate(timeout=left())
            assert process.returncode == 0, err
            (law,) = map(json.loads, out.splitlines())
            assert law["holds"]
            assert law["lag"] == 0
            found[where] = alerts_of(log)
    assert len(found["here"]) > 50
    assert found["cluster"] == found["here"]


def alerts_of(log: Log) -> list[tuple[Any, ...]]:
    """The alerts with their evidence, in a fixed order."""
    if "fraud.alerts" not in [topic.name for topic in log.topics()]:
        return []
    rows = [r.value for batch in log.read("fraud.alerts") for r in batch.records()]
    return sorted((row["alert"], str(row["evidence"]), row["value"]) for row in rows)
