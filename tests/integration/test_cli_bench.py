"""A benchmark is a file in bench/ with a function `run`."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli import bench
from tests.integration.test_cli_running import Cli

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
    told = cli.json("bench", "speed", "--quick")
    assert told["bench"] == "speed"
    assert told["settings"] == {"quick": True}
    assert told["results"][0]["ratio"] == 4.0
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
