"""Every example in README.md and docs/ runs, and prints what the page shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from bench.baselines import debezium
from headrace.servers.kafka import Cluster
from headrace.servers.spark_cluster import Standalone
from tests.docs.pages import blocks, same
from tests.servers.opensearch import OpenSearch
from tests.servers.redis import Redis
from tests.waiting import left

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if any(blocks(page))
]

_LONG = {
    "docs/concepts/joins.md",
    "docs/concepts/log-and-queue.md",
    "docs/concepts/panes.md",
    "docs/concepts/queues.md",
    "docs/concepts/windows.md",
    "docs/how-to/analyse-a-view-with-duckdb.md",
    "docs/how-to/back-up-and-restore.md",
    "docs/how-to/backfill-from-files.md",
    "docs/how-to/drills.md",
    "docs/how-to/capture-with-debezium.md",
    "docs/how-to/chain-steps.md",
    "docs/how-to/change-a-pipeline.md",
    "docs/how-to/develop-in-a-notebook.md",
    "docs/how-to/drop-duplicates.md",
    "docs/how-to/exactly-once-to-kafka.md",
    "docs/how-to/find-out-what-is-wrong.md",
    "docs/how-to/flag-fraud.md",
    "docs/how-to/join-captured-tables.md",
    "docs/how-to/keep-a-leaderboard.md",
    "docs/how-to/keep-a-view-in-opensearch.md",
    "docs/how-to/keep-state-in-python.md",
    "docs/how-to/keep-stores-in-step-with-a-database.md",
    "docs/how-to/lose-a-broker.md",
    "docs/how-to/outbox.md",
    "docs/how-to/react-to-events.md",
    "docs/how-to/run-in-real-time.md",
    "docs/how-to/search-a-view.md",
    "docs/how-to/run-on-a-cluster.md",
    "docs/how-to/run-on-kafka.md",
    "docs/how-to/test-a-pipeline.md",
    "docs/how-to/use-the-log-from-spark.md",
    "docs/how-to/verify-a-view.md",
    "docs/how-to/write-a-pipeline-in-sql.md",
    "docs/tutorial-event-sourcing.md",
    "docs/tutorial.md",
}
"""Pages that start Spark several times, several brokers, or a Java of their own."""

_DEBEZIUM = {"docs/how-to/capture-with-debezium.md"}
"""Pages that need Debezium's engine."""

_DATABASES = {
    "docs/how-to/capture-mysql.md": "mariadb",
    "docs/how-to/capture-postgresql.md": "postgresql",
    "docs/how-to/capture-with-debezium.md": "postgresql",
}
"""Pages of a database, whose address is in the variable SHOP, by the fixture that gives it."""

_SERVERS: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "docs/how-to/keep-a-view-in-redis.md": ("REDIS_URL", Redis.running),
    "docs/how-to/keep-a-view-in-opensearch.md": ("OPENSEARCH_URL", OpenSearch.running),
}
"""Pages that use a server, by the variable that has its address."""


def _parameter(page: Path) -> Any:
    name = str(page.relative_to(ROOT))
    marks = [pytest.mark.slow] if name in _LONG else []
    marks += [pytest.mark.service] if name in {*_DATABASES, *_SERVERS} else []
    if name in _DEBEZIUM:
        reason = debezium.missing()
        marks.append(pytest.mark.skipif(reason is not None, reason=str(reason)))
    return pytest.param(page, id=name, marks=marks)


def end_servers(folder: Path, namespace: dict[str, Any]) -> None:
    """Stop servers that a failed page left running."""
    Cluster(folder / "kafka-data").down()
    for value in namespace.values():
        if isinstance(value, Standalone):
            value.close()


@pytest.mark.parametrize("page", [_parameter(page) for page in PAGES])
def test_the_examples_of_a_page_do_what_they_say(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_LOG", raising=False)
    bin_folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": "100"}
    # A page may start a Kafka beside those of other tests.
    environment["HEADRACE_KAFKA_PORT"] = "0"
    namespace: dict[str, Any] = {"__name__": "page"}
    request.addfinalizer(lambda: end_servers(tmp_path, namespace))
    fixture = _DATABASES.get(str(page.relative_to(ROOT)))
    database = None if fixture is None else request.getfixturevalue(fixture)
    if database is not None:
        environment["SHOP"] = database.url
        monkeypatch.setenv("SHOP", database.url)
        monkeypatch.setenv("DEBEZIUM_PYTHON", str(debezium.ENVIRONMENT))
    if (used := _SERVERS.get(str(page.relative_to(ROOT)))) is not None:
        variable, running = used
        server = running()
        monkeypatch.setenv(variable, server.__enter__().url)
        request.addfinalizer(lambda: server.__exit__(None, None, None))
    for block in blocks(page, database=database is not None):
        where = f"{page.name}:{block.line}"
        if block.file is not None:
            Path(block.file).write_text(block.text)
            continue
        if block.kind == "sql" and database is not None:
            database.execute(*(one for one in block.text.split(";\n") if one))
            continue
        if block.kind == "python":
            padded = "\n" * (block.line - 1) + block.text
            code = compile(padded, str(page), "exec", dont_inherit=True)
            exec(code, namespace)  # noqa: S102 - our own documentation
            continue
        for command in block.commands:
            done = subprocess.run(
                ["bash", "-c", command.text],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=left(),
                check=False,
            )
            assert same(command.expected, done.stdout), (
                f"{where}: $ {command.text}\nshould print\n{command.expected}\n"
                f"and prints\n{done.stdout}"
            )
