"""The commands of the log, on Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.servers.java.ports import free
from headrace.servers.kafka import ClusterState
from tests.integration.test_cli_running import Cli

pytestmark = pytest.mark.service


@pytest.fixture
def cli(tmp_path: Path, broker: ClusterState) -> Cli:
    cli = Cli(tmp_path)
    cli.url = broker.url
    return cli


def test_topics_are_made_filled_read_and_deleted(cli: Cli) -> None:
    output = cli.run(
        "topics", "create", "cli.orders", "--schema", "id string, n int", "--key", "id"
    )
    assert cli.url in output.stderr
    cli.run("produce", "cli.orders", input='{"id":"a","n":1}\n{"id":"b","n":2}\n')
    shown = cli.json("topics", "describe", "cli.orders")
    assert (shown["schema"], shown["records"], shown["bytes"]) == ("id string, n int", 2, None)
    assert "cli.orders" in cli.run("topics", "list").stdout
    found = cli.lines("consume", "cli.orders", "--max", "2")
    assert [(r["offset"], r["key"], r["value"]["n"]) for r in found] == [(0, "a", 1), (1, "b", 2)]
    assert set(found[0]) == {
        "topic", "partition", "offset", "key", "value", "timestamp", "headers",
    }  # fmt: skip
    cli.run("topics", "alter", "cli.orders", "--set", "retention=1d")
    assert cli.json("topics", "describe", "cli.orders")["settings"]["retention"] == "1d"
    cli.run("topics", "delete", "cli.orders", "--yes")
    assert "cli.orders" not in cli.run("topics", "list").stdout


def test_groups_are_listed_described_and_moved(cli: Cli) -> None:
    cli.fill("cli.numbers", [str(n) for n in range(10)], partitions=2)
    cli.run("consume", "cli.numbers", "--group", "cli.readers", "--max", "4")
    output = cli.json("groups", "describe", "cli.readers")
    assert (output["lag"], output["members"]) == (6, [])
    assert sum(lag["committed"] or 0 for lag in output["lags"]) == 4
    assert "6 records" in cli.run("groups", "describe", "cli.readers").stdout
    assert "cli.readers" in [group["name"] for group in cli.lines("groups", "list")]
    cli.run("groups", "reset", "cli.readers", "--topic", "cli.numbers", "--to", "earliest")
    assert cli.json("groups", "describe", "cli.readers")["lag"] == 10


def test_what_kafka_has_not_is_refused_by_name(cli: Cli) -> None:
    cli.fill("cli.plain", ["x"])
    said = cli.run("topics", "compact", "cli.plain", code=2).stderr
    assert "compaction on demand" in said


def test_without_a_broker_a_command_says_so_and_ends(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    (port,) = free(1)
    cli.url = f"kafka://127.0.0.1:{port}?timeout=2s"
    output = cli.run("topics", "list", code=1).stderr
    assert f"127.0.0.1:{port}" in output
    assert "headrace kafka status" in output
