"""The demo runs to its end by itself, and its account is right."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from headrace.cli.demonstration.run import create_topic
from tests.integration.test_cli_running import Cli, ended, wait_until


def test_the_demo_kills_processes_and_accounts_for_every_event(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    process = cli.start("demo", "--once", "--events", "300", "--log", cli.url)
    code, out, err = ended(process)
    assert code == 0, out + err
    assert out.count("kill -9") == 2
    assert "back as" in out
    assert out.count("✓") == 6
    assert "✗" not in out
    assert "Nothing was lost." in out
    assert err == ""
    numbers = [record.value["number"] for record in cli.records("demo.orders")]
    assert sorted(numbers) == list(range(300))
    told = {group["name"]: group["lag"] for group in cli.lines("groups", "list")}
    assert told == {"dashboard": 0, "search": 0, "warehouse": 0}


def test_the_demo_prints_its_account_as_json(tmp_path: Path) -> None:
    told = Cli(tmp_path).json("demo", "--once", "--events", "7")
    assert told["holds"] is True
    assert told["events"] == told["acknowledged"] == 7
    assert [set(finding) for finding in told["findings"]] == 6 * [
        {"law", "holds", "counted", "remark"}
    ]
    assert not Path(told["log"].removeprefix("file:")).exists()


def test_ctrl_c_ends_the_demo_and_all_its_processes(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    process = cli.start("demo", "--log", cli.url)
    assert process.stdout is not None
    while b" written" not in process.stdout.readline():
        pass
    with cli.open() as log:
        wait_until(lambda: "dashboard" in log.groups() and log.group("dashboard").members)
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
        assert (code, err) == (130, "")
    running = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True)
    assert cli.url not in running.stdout


def test_a_log_that_has_seen_a_demo_can_see_another(tmp_path: Path) -> None:
    with Cli(tmp_path).open() as log:
        assert [create_topic(log) for _ in range(3)] == [
            *("demo.orders", "demo.orders-2", "demo.orders-3"),
        ]


def test_a_demo_needs_an_event(tmp_path: Path) -> None:
    assert "'--events'" in Cli(tmp_path).run("demo", "--events", "0", code=2).stderr
