"""A benchmark is a file in bench/ with a function `run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.baselines import debezium
from headrace.cli import bench
from tests.integration.test_cli_running import Cli
from tests.spark import shared

SOURCE = """
import dataclasses


@dataclasses.dataclass
class Speed:
    value: float


def run(quick, progress):
    progress("measuring")
    return {
        "bench": "speed",
        "settings": {"quick": quick},
        "results": [
            {"name": "send", "value": 2e6, "unit": "records/s", "baseline": "SQLite",
             "baseline_value": Speed(5e5).value, "ratio": 4.0},
            {"name": "open", "value": 1.5, "unit": "ms", "baseline": None,
             "baseline_value": None, "ratio": None},
        ],
    }
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / "speed.py").write_text(SOURCE)
    (folder / "plain.py").write_text(
        '\ndef run(quick):\n    return {"bench": "plain", "settings": {}, "results": []}\n'
    )
    (folder / "helper.py").write_text("x = 1\n")
    monkeypatch.setattr(bench, "_folder", lambda: folder)
    return Cli(tmp_path)


def test_json_is_what_the_benchmark_returned(cli: Cli) -> None:
    report = cli.json("bench", "speed", "--quick")
    assert report["bench"] == "speed"
    assert report["settings"] == {"quick": True}
    assert report["results"][0]["ratio"] == 4.0
    assert cli.run("bench", "speed", "--json").stderr == "measuring\n"


def test_a_table_shows_values_baselines_and_ratios(cli: Cli) -> None:
    shown = cli.run("bench", "speed").stdout
    assert "2,000,000" in shown
    assert "500,000" in shown
    assert "4.00" in shown
    assert "quick=False" in shown


def test_a_benchmark_need_not_tell_of_its_progress(cli: Cli) -> None:
    assert cli.json("bench", "plain")["results"] == []


def test_an_unknown_benchmark_is_told_which_there_are(cli: Cli) -> None:
    done = cli.run("bench", "nope", code=2)
    assert done.stderr == "error: There is no benchmark 'nope'\n  → There are: plain, speed\n"
    assert "'helper'" in cli.run("bench", "helper", code=2).stderr


def test_without_a_source_checkout_there_are_no_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.__file__", str(tmp_path / "a" / "b" / "headrace" / "__init__.py"))
    done = Cli(tmp_path).run("bench", "log", code=2)
    assert "not part of the installed package" in done.stderr


CHANGED = ("orders", "product", "orders_without_spark")


def _results(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The results by name. Each has all its parts, and a ratio that matches its values."""
    for result in report["results"]:
        assert set(result) == {"name", "value", "unit", "baseline", "baseline_value", "ratio"}
        assert result["value"] > 0
        one, other = result["value"], result["baseline_value"]
        better = one / other if "/s" in result["unit"] else other / one
        assert result["ratio"] == pytest.approx(better, rel=0.01, abs=1e-3)
    return {result["name"]: result for result in report["results"]}


@pytest.mark.slow
def test_windows_are_measured_against_hand_written_spark(tmp_path: Path) -> None:
    shared()
    report = Cli(tmp_path).json("bench", "windows", "--quick")
    found = _results(report)
    queries = {"tumbling", "hopping"}
    parts = {"", "_without_changelog", "_changelog", "_duckdb"}
    growth = {"few_events", "few_events_growth", "many_keys", "many_keys_growth"}
    others = {"sliding", "session", "top_n"}
    assert set(found) == (
        {f"{query}{part}" for query in queries for part in parts}
        | {f"tumbling_{what}" for what in growth}
        | others
        | {f"{kind}_state_{what}" for kind in {"tumbling", *others} for what in ("rows", "bytes")}
    )
    assert {found[query]["baseline"] for query in queries} == {"PySpark by hand"}
    assert report["settings"]["events"] == 40_000


@pytest.mark.slow
def test_joins_are_measured_against_plain_spark(tmp_path: Path) -> None:
    shared()
    report = Cli(tmp_path).json("bench", "joins", "--quick")
    every = _results(report)
    assert {every[name]["baseline"] for name in ("stream-stream", "stream-table")} == {
        "PySpark by hand"
    }
    found = {name: r for name, r in every.items() if name.startswith("table-table")}
    sizes = ("of_1000", "of_2000", "of_5000", "growth")
    changes = {f"table-table_100_rows_by_{what}" for what in CHANGED}
    assert set(found) == (
        {"table-table", "table-table_touching_1000", "table-table_load"}
        | {f"{change}_{size}" for change in changes for size in sizes}
    )
    assert found["table-table"]["baseline"] == "PySpark, the whole join again"
    assert report["settings"]["table_table_plan"]["rows"] == 50_000_000


@pytest.mark.slow
def test_freshness_is_measured_against_hand_written_spark(tmp_path: Path) -> None:
    shared()
    report = Cli(tmp_path).json("bench", "freshness", "--quick")
    found = _results(report)
    assert set(found) == {
        f"freshness_{rate}_{share}" for rate in (1_000, 10_000) for share in ("p50", "p99")
    }
    assert {result["unit"] for result in found.values()} == {"ms"}
    for rate in report["settings"]["rates"]:
        assert found[f"freshness_{rate}_p99"]["value"] >= found[f"freshness_{rate}_p50"]["value"]


@pytest.mark.slow
def test_a_leaderboard_is_measured_against_hand_written_spark(tmp_path: Path) -> None:
    shared()
    report = Cli(tmp_path).json("bench", "leaderboard", "--quick")
    found = _results(report)
    assert set(found) == {"update", "update_few", "update_growth", "stored_growth", "changes"}
    assert found["changes"]["value"] <= found["changes"]["baseline_value"]


@pytest.mark.slow
def test_state_is_measured_against_state_per_key(tmp_path: Path) -> None:
    shared()
    report = Cli(tmp_path).json("bench", "keyed-state", "--quick")
    found = _results(report)
    kinds = ("keyed_state", "keyed_state_in_time", "pattern")
    assert set(found) == {
        *(f"{kind}{part}" for kind in kinds for part in ("", "_batch")),
        "twice_the_keys",
        "ttl_state_bytes",
    }
    assert report["bench"] == "keyed-state"
    assert found["ttl_state_bytes"]["ratio"] > 0.9


@pytest.mark.slow
def test_what_joins_and_state_hold_is_measured_over_a_run(tmp_path: Path) -> None:
    shared()
    report = Cli(tmp_path).json("bench", "state", "--quick")
    found = _results(report)
    assert set(found) == {
        f"{name}_{what}"
        for name in ("stream-stream", "stateful", "deduplicate", "enrich")
        for what in ("state_rows", "state_bytes", "memory")
    }
    assert report["settings"]["events"]["stream-stream"] == 40_000


@pytest.mark.slow
@pytest.mark.service
def test_kafka_is_measured_against_hand_written_spark(tmp_path: Path) -> None:
    report = Cli(tmp_path).json("bench", "kafka", "--quick")
    names = {result["name"] for result in report["results"]}
    assert {
        "json",
        "avro",
        "json_same_source",
        "avro_same_source",
        "json_in_time",
        "relay",
    } <= names
    assert all(result["value"] > 0 and result["ratio"] > 0 for result in report["results"])


@pytest.mark.slow
def test_commands_are_measured_against_the_eventsourcing_library(tmp_path: Path) -> None:
    found = _results(Cli(tmp_path).json("bench", "commands", "--quick"))
    assert set(found) == {
        f"{writers}{part}"
        for writers in ("1 writer", "8 writers", "8 writers, hot account")
        for part in ("", ", events only", ", grouped", ", events only, grouped")
    }
    assert {result["baseline"] for result in found.values()} == {"eventsourcing"}


@pytest.mark.slow
def test_replays_are_measured_against_plain_python(tmp_path: Path) -> None:
    shared()
    report = Cli(tmp_path).json("bench", "replay", "--quick")
    found = _results(report)
    assert set(found) == {
        "replay", "replay in batches", "states from snapshots", "50 million, extrapolated"
    }  # fmt: skip
    assert {result["baseline"] for result in found.values()} == {"plain Python"}
    assert report["settings"]["events"] == 40_000


@pytest.mark.slow
@pytest.mark.service
def test_captures_are_measured_from_the_database_to_each_store(tmp_path: Path) -> None:
    shared()
    report = Cli(tmp_path).json("bench", "cdc", "--quick")
    found = {result["name"]: result for result in report["results"]}
    rates = {f"rate, transactions of {size}" for size in ("1", "10", "1,000")}
    stores = {"PostgreSQL", "Redis", "search index", "Delta table"}
    hops = {"topic", "view in SQLite", *stores}
    hops |= {"topic, from SQLite", "view in SQLite, from SQLite"}
    lags = {f"lag, {hop}, {share}" for hop in hops for share in ("p50", "p99")}
    others = {"snapshot", "trigger overhead", "verify, whole", "verify, after 100 changes"}
    engine = debezium.missing() is None
    processor = {name.replace("rate", "processor") for name in rates} if engine else set()
    assert set(found) == rates | processor | others | lags
    assert all(result["value"] > 0 for result in found.values())
    compared = set(found) if engine else set(found) - rates
    assert all(found[name]["baseline_value"] > 0 for name in compared)
    for hop in hops:
        assert found[f"lag, {hop}, p50"]["value"] <= found[f"lag, {hop}, p99"]["value"]


@pytest.mark.slow
@pytest.mark.service
def test_the_queue_is_measured_against_rabbitmq(tmp_path: Path) -> None:
    report = Cli(tmp_path).json("bench", "queue", "--quick")
    found = _results(report)
    theirs = {
        *(f"{what}, {n}" for what in ("put", "accept", "put each", "through") for n in (1, 8)),
        "accept, concurrency 8",
        "latency",
    }
    assert set(found) == theirs | {"accept of 50,000 waiting", "accept of 50,000 keys"}
    assert {found[name]["baseline"] for name in theirs} == {"RabbitMQ", "RabbitMQ, processes"}
    assert set(report["settings"]["durability"]) == {"ours", "RabbitMQ"}
