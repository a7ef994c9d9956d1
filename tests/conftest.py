"""Fixtures and settings of all tests.

Hypothesis runs with the profile `quick`, or `deep` with HYPOTHESIS_PROFILE=deep. Laws of Spark
try other examples in every run; a failure prints the seed, and HYPOTHESIS_SEED repeats it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from headrace.servers.java import jars
from headrace.servers.kafka.state import ClusterState
from tests import kafka, schedule, waiting
from tests.seed import SEED
from tests.servers.mariadb import Database as MariadbDatabase
from tests.servers.mariadb import Mariadb
from tests.servers.postgresql import Database as PostgresqlDatabase
from tests.servers.postgresql import Postgresql
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Database as RedisDatabase
from tests.servers.redis import Redis
from tests.servers.sharing import shared

# No test depends on the wall clock, and a busy disk is slow at times.
_CALM = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "quick", max_examples=100, deadline=None, derandomize=True, suppress_health_check=_CALM
)
settings.register_profile(
    "deep", max_examples=2_000, deadline=None, suppress_health_check=_CALM, print_blob=True
)
# Shrinking an example that a mutation breaks is not worth the time.
settings.register_profile(
    "unshrunk", settings.get_profile("quick"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Collecting thousands of tests makes millions of objects, all of which stay. Looking for garbage
# among them takes as long as the rest, and again in every full collection later.
gc.disable()

# Pipelines of tests run for seconds.
os.environ["HEADRACE_BRIEF"] = "1"
# `make test` has made it, or cannot.
os.environ["HEADRACE_ARCHIVE"] = "off"

# A background job of a script starts with Ctrl-C ignored, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: schedule.rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> schedule.ByModule:
    # Else pytest-xdist hands out modules by their number of tests, and a long one comes last.
    config.option.loadscopereorder = False
    return schedule.ByModule(config, log)


_WITHOUT_SPARK = {"unit", "conformance", "studio"}
"""Folders of tests that start no Spark and need no jars."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make sure that the first Spark of this process can read Kafka, and import from the tests.

    Its Pythons import from the folder in which Java starts, and that may be the folder of a test.
    """
    gc.freeze()
    gc.enable()
    root = session.config.rootpath / "tests"
    if {item.path.relative_to(root).parts[0] for item in session.items} - _WITHOUT_SPARK:
        found = ",".join(map(str, jars("spark-kafka")))
        path = f"--conf spark.executorEnv.PYTHONPATH={session.config.rootpath}"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {found} {path} pyspark-shell"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    waiting.begin(item)
    # Only tests that use Spark import it.
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
    if report.failed and (spark := sys.modules.get("tests.spark")) is not None:
        spark.reconnect()
    if report.failed and "property" in item.path.parts:
        report.sections.append(("seed", f"HYPOTHESIS_SEED={SEED} tries the same examples again"))
    return report


@pytest.fixture(autouse=True)
def _forget_pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Unload pipelines after each test: many are called shop.py."""
    before = set(sys.modules)
    yield
    folder = f"{tmp_path_factory.getbasetemp()}/"
    for name in sys.modules.keys() - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
            del sys.modules[name]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterState]:
    """A Kafka broker that the tests of all processes share, so topic names must be unique."""
    folder = _common_folder(tmp_path_factory) / "kafka"
    with kafka.shared(folder, os.environ.get("PYTEST_XDIST_WORKER") or "only") as state:
        yield state


@pytest.fixture(scope="session")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgresql]:
    """A PostgreSQL that the tests of all processes share. Its settings stay as they are."""
    with shared(Postgresql, _common_folder(tmp_path_factory) / "postgresql") as server:
        yield server


@pytest.fixture
def postgresql(postgresql_server: Postgresql) -> Iterator[PostgresqlDatabase]:
    """A database of this test on PostgreSQL."""
    with postgresql_server.database() as database:
        yield database


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mariadb]:
    """A MariaDB that the tests of all processes share. Its settings stay as they are."""
    with shared(Mariadb, _common_folder(tmp_path_factory) / "mariadb") as server:
        yield server


@pytest.fixture
def mariadb(mariadb_server: Mariadb) -> Iterator[MariadbDatabase]:
    """A database of this test on MariaDB."""
    with mariadb_server.database() as database:
        yield database


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A Redis that the tests of all processes share. Its settings stay as they are."""
    with shared(Redis, _common_folder(tmp_path_factory) / "redis") as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A RabbitMQ that the tests of all processes share. Each test names its own queues."""
    with shared(RabbitMQ, _common_folder(tmp_path_factory) / "rabbitmq") as server:
        yield server


@pytest.fixture
def redis(redis_server: Redis) -> Iterator[RedisDatabase]:
    """A database of this test on Redis."""
    with redis_server.database() as database:
        yield database


def _common_folder(factory: pytest.TempPathFactory) -> Path:
    """The folder of the test run, which its processes have in common."""
    folder = factory.getbasetemp()
    return folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder
