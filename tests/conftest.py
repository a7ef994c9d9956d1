"""What all tests have in common.

How much Hypothesis tries is `quick` by default, and `deep` with HYPOTHESIS_PROFILE=deep. Laws of
Spark try other examples in every run; a failure names the seed, and HYPOTHESIS_SEED repeats it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from headrace.servers.java import jars
from headrace.servers.kafka.state import ClusterState
from tests import kafka, waiting
from tests.seed import SEED

# Nothing is judged by the wall clock here, and files on a busy disk are slow now and then.
_CALM = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "quick", max_examples=100, deadline=None, derandomize=True, suppress_health_check=_CALM
)
settings.register_profile(
    "deep", max_examples=2_000, deadline=None, suppress_health_check=_CALM, print_blob=True
)
# What a mutation breaks is not worth the time to make it small.
settings.register_profile(
    "unshrunk", settings.get_profile("quick"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Pipelines of tests run for seconds.
os.environ["HEADRACE_BRIEF"] = "1"

# A run in the background of a script begins with Ctrl-C ignored, and its children would too.
signal.signal(signal.SIGINT, signal.default_int_handler)


_WITHOUT_SPARK = {"unit", "conformance"}
"""Folders of tests that start no Spark, and so need no jars."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let whoever starts Spark first in this process start one that can read Kafka."""
    root = session.config.rootpath / "tests"
    if {item.path.relative_to(root).parts[0] for item in session.items} - _WITHOUT_SPARK:
        found = ",".join(map(str, jars("spark-kafka")))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {found} pyspark-shell"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    waiting.begin(item)
    # Only tests of Spark import it.
    if (spark := sys.modules.get("tests.spark")) is not None:
        spark.generate_code(item.get_closest_marker("slow") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    waiting.end()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "property" in item.path.parts:
        report.sections.append(("seed", f"HYPOTHESIS_SEED={SEED} tries the same examples again"))
    return report


@pytest.fixture(autouse=True)
def _forget_pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the next test load a pipeline of the same name anew: many are called shop.py."""
    yield
    folder = f"{tmp_path_factory.getbasetemp()}/"
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(folder):
            del sys.modules[name]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterState]:
    """A Kafka broker that all tests share, in whatever process they run: name topics apart."""
    folder = tmp_path_factory.getbasetemp()
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    with kafka.shared((folder.parent if worker else folder) / "kafka", worker or "only") as state:
        yield state
