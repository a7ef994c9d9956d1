"""Commands as processes: exit codes, signals and pipes. `Cli` runs the others in this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import LogBusy
from headrace.log import Log, Record, open_log
from tests.waiting import left, started, wait_until


class Cli:
    """The command line on a log in a test's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"file:{folder / 'log'}"
        self.environment = os.environ | {"HEADRACE_LOG": self.url, "NO_COLOR": "1"}

    def run(self, *words: str, input: str | bytes = "", code: int = 0) -> Result:
        """Run a command in this process, and check that it exits with `code`."""
        done = self.invoke(*words, input=input)
        assert done.exit_code == code, done.output
        return done

    def invoke(self, *words: str, input: str | bytes = "") -> Result:
        """Run a command in this process, whatever its exit code."""
        runner = CliRunner(env={"HEADRACE_LOG": self.url})
        return runner.invoke(app, words, input=input, prog_name="headrace", catch_exceptions=False)

    def json(self, *words: str, input: str | bytes = "") -> Any:
        """The one JSON object that a command prints."""
        done = self.run(*words, "--json", input=input)
        assert done.stdout.count("\n") == 1
        return json.loads(done.stdout)

    def lines(self, *words: str) -> list[Any]:
        """The JSON objects that a command prints, one per line."""
        return [json.loads(line) for line in self.run(*words, "--json").stdout.splitlines()]

    def start(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a command as a separate process."""
        return started(
            subprocess.Popen(
                [sys.executable, "-m", "headrace.cli.main", *words],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment,
                process_group=0,
            )
        )

    def open(self) -> Log:
        return open_log(self.url)

    def records(self, topic: str) -> list[Record]:
        with self.open() as log:
            return [record for batch in log.read(topic) for record in batch.records()]

    def fill(self, topic: str, values: Sequence[str], *, partitions: int = 1) -> None:
        """Create a raw topic with a record for each value, which is also its key."""
        with self.open() as log:
            log.create_topic(topic, partitions=partitions)
            with log.producer(acks="written") as producer:
                for value in values:
                    producer.send(topic, value, key=value)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """The exit code of a process, and the rest of its output."""
    out, err = process.communicate(timeout=left())
    return process.returncode, out.decode(), err.decode()


def test_the_installed_script_and_the_module_are_the_same_program(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("headrace")
    said = subprocess.run([script, "--version"], check=True, capture_output=True, text=True)
    assert said.stdout == Cli(tmp_path).run("--version").stdout
    assert said.stdout.startswith("headrace ")


def test_without_a_command_the_help_is_shown(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    assert "Usage: headrace [OPTIONS] COMMAND" in cli.run().stdout
    assert "describe" in cli.run("topics").stdout
    assert "reset" in cli.run("groups").stdout


def test_a_wrong_word_is_told_in_two_lines_and_exits_with_2(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    assert cli.run("topcis", code=2).stderr == (
        "error: No such command 'topcis'. Did you mean 'topics'?\n  → headrace --help\n"
    )
    done = cli.run("topics", "list", "--nope", code=2)
    assert done.stderr.startswith("error: No such option: --nope")
    assert done.stderr.endswith("\n  → headrace topics list --help\n")
    assert done.stdout == ""


def test_a_missing_word_is_named(tmp_path: Path) -> None:
    done = Cli(tmp_path).run("topics", "describe", code=2)
    assert "error: Missing argument 'NAME'" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "list"),
        ("topics", "describe", "t"),
        ("topics", "alter", "t", "--partitions", "2"),
        ("topics", "delete", "t", "--yes"),
        ("topics", "compact", "t"),
        ("topics", "upkeep"),
        ("produce", "t"),
        ("consume", "t"),
        ("groups", "list"),
        ("groups", "describe", "g"),
        ("groups", "reset", "g", "--topic", "t", "--to", "earliest"),
        ("groups", "delete", "g", "--yes"),
    ],
)
def test_a_command_that_reads_does_not_make_a_log(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = Cli(tmp_path).run(*words, "--json", code=1)
    assert done.stderr.startswith("error: There is no log in ")
    assert "\n  → Create a topic to start one" in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "log").exists()


def test_a_url_of_no_known_kind_is_the_users_mistake(tmp_path: Path) -> None:
    done = Cli(tmp_path).run("topics", "list", "--log", "ftp://x", code=2)
    assert done.stderr.startswith("error: 'ftp://x' is not the address of a log\n  → Use file:")


def test_the_option_is_stronger_than_the_variable(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "a", "--log", f"file:{tmp_path / 'other'}")
    cli.run("topics", "list", code=1)
    assert cli.lines("topics", "list", "--log", f"file:{tmp_path / 'other'}")[0]["name"] == "a"


def test_an_error_of_the_log_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object, **__: object) -> None:
        raise LogBusy("Somebody is writing", hint="Try again\nor wait")

    monkeypatch.setattr("headrace.cli.topics.open_log", busy)
    done = Cli(tmp_path).run("topics", "list", code=1)
    assert done.stderr == "error: Somebody is writing\n  → Try again\n  → or wait\n"


def test_an_error_that_nobody_foresaw_keeps_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("headrace.cli.topics.open_log", broken)
    with pytest.raises(ZeroDivisionError):
        Cli(tmp_path).run("topics", "list")


def test_a_reader_that_goes_away_ends_consume_quietly(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.fill("t", [f"{n:0200d}" for n in range(3_000)])
    process = cli.start("consume", "t", "--json")
    assert process.stdout is not None and process.stderr is not None
    assert json.loads(process.stdout.readline())["offset"] == 0
    process.stdout.close()
    assert process.wait(left()) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_group_is_not_moved_past_what_a_broken_pipe_has_lost(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.fill("t", [f"{n:0200d}" for n in range(3_000)])
    process = cli.start("consume", "t", "--group", "g")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(left()) == 141
    process.stderr.close()
    # The pipe holds 64 KiB, which may or may not have been read.
    assert cli.json("groups", "describe", "g")["lag"] > 3_000 - 2_000


def test_ctrl_c_ends_follow_quietly_with_130_after_the_group_has_moved(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.fill("t", ["a"])
    process = cli.start("consume", "t", "--group", "g", "--follow", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["value"] == "a"
    with cli.open() as log:
        with log.producer() as producer:
            producer.send("t", "b")
        assert json.loads(process.stdout.readline())["value"] == "b"
        wait_until(lambda: log.group("g").lag == 0)
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, "", "")
        assert log.group("g").members == ()


def test_a_terminated_consumer_leaves_its_group(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.fill("t", ["a"])
    process = cli.start("consume", "t", "--group", "g", "--follow")
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert ended(process) == (143, "", "")
    with cli.open() as log:
        assert log.group("g").members == ()


def test_ctrl_c_commits_what_produce_has_read_and_says_so(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.fill("t", [])
    process = cli.start("produce", "t", "--acks", "none", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"value": 1}\n{"value": 2}\n')
    process.stdin.flush()
    with cli.open() as log:
        wait_until(lambda: log.topic("t").records == 2)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "", "Interrupted. Lines 1 to 2 are in the log\n")
