"""`headrace doctor`: quick, without starting Spark, and it exits with 1 if something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.integration.test_cli_running import Cli

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = "item string, price double, at timestamp"
PIPELINE = f"""
from datetime import timedelta
import headrace as hr
app = hr.App("shop")
orders = app.topic("orders", schema={SCHEMA!r}, event_time="at")
sales = hr.aggregate(
    orders,
    by="item",
    window=hr.tumbling(timedelta(minutes=1)),
    lateness=hr.Lateness(timedelta(0), timedelta(0)),
    sold=hr.count(),
)
app.view("sales", sales)
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """A log with an empty topic, and an application that reads it."""
    made = Cli(tmp_path)
    (tmp_path / "shop.py").write_text(PIPELINE)
    with made.open() as log:
        log.create_topic("orders", schema=SCHEMA, event_time="at")
    return made


def sell(cli: Cli, times: int) -> None:
    """Send the same ten orders this many times."""
    with cli.open() as log:
        for _ in range(times):
            with log.producer() as producer:
                for n in range(10):
                    at = NOON + timedelta(seconds=n, milliseconds=5)
                    producer.send("orders", {"item": "[pen]", "price": 1.5, "at": at})


def test_a_healthy_application_exits_with_0(cli: Cli) -> None:
    sell(cli, 1)
    shown = cli.run("doctor", f"{cli.folder}/shop.py:app").stdout
    assert shown.startswith("shop is not running\n")
    assert "it has not run yet; backlog: 10 rows in 1 commit" in shown
    assert shown.endswith("Nothing is wrong. Examined all 10 rows of topic orders, in 1 commit\n")
    report = cli.json("doctor", f"{cli.folder}/shop.py:app")
    assert (report["app"], report["healthy"], report["running"], report["findings"]) == (
        "shop", True, None, [],
    )  # fmt: skip
    (step,) = report["steps"]
    assert (step["step"], step["lag"], step["lag_commits"]) == ("sales", 10, 1)
    assert [wait["name"] for wait in step["waits"]] == ["never run"]


def test_what_is_wrong_is_shown_and_exits_with_1(cli: Cli) -> None:
    sell(cli, 3)
    shown = cli.run("doctor", f"{cli.folder}/shop.py:app", code=1).stdout
    assert "\norders: duplicates\n" in shown
    assert '3 times, first in commit 1, last in 3: {"item": "[pen]", "price": 1.5' in shown
    report = json.loads(cli.run("doctor", f"{cli.folder}/shop.py:app", "--json", code=1).stdout)
    (finding,) = report["findings"]
    assert (finding["name"], finding["subject"]) == ("duplicates", "orders")
    assert (finding["events"], finding["copies"], finding["rows"]) == (10, 20, 30)
    assert finding["remedy"]
    assert finding["evidence"]
    assert report["looked_at"] == ["all 30 rows of topic orders, in 3 commits"]


def test_how_many_rows_are_looked_at_can_be_said(cli: Cli) -> None:
    sell(cli, 3)
    report = cli.json("doctor", f"{cli.folder}/shop.py:app", "--rows", "10")
    assert report["looked_at"] == ["the newest 10 of 30 rows of topic orders, in 1 commit"]


def test_a_log_that_is_not_there_is_not_made(cli: Cli, tmp_path: Path) -> None:
    missing = f"file:{tmp_path / 'missing'}"
    done = cli.run("doctor", f"{cli.folder}/shop.py:app", "--log", missing, code=1)
    assert "There is no log in " in done.stderr
    assert not (tmp_path / "missing").exists()


def test_nothing_is_changed_and_no_spark_is_started(cli: Cli) -> None:
    sell(cli, 1)
    before = sorted(path.name for path in (cli.folder / "log").iterdir())
    program = (
        "import sys\n"
        "from headrace.cli.main import app\n"
        "try:\n"
        f"    app(['doctor', {f'{cli.folder}/shop.py:app'!r}, '--log', {cli.url!r}])\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "from pyspark import SparkContext\n"
        "sys.exit('Spark was started' if SparkContext._active_spark_context else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (cli.folder / "log").iterdir()) == before
