"""What all tests have in common.

How much Hypothesis tries is `quick` by default, and `deep` with HYPOTHESIS_PROFILE=deep.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from headrace.servers.java import jars
from headrace.servers.kafka.state import ClusterState
from tests import kafka

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

# Whoever is the first to start Spark in a process, others may want to read Kafka with it.
_JARS = ",".join(map(str, jars("spark-kafka")))
os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {_JARS} pyspark-shell"

# A run in the background of a script begins with Ctrl-C ignored, and its children would too.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
