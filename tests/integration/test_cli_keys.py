"""`headrace keys`: output and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace.eventsourcing as es
from tests.integration.test_cli_running import Cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("HEADRACE_KEYS", str(tmp_path / "people.db"))
    with es.KeyStore(tmp_path / "people.db") as keys:
        keys.seal("customer/c-7", "Jane", ("place",))
        keys.seal("customer/c-8", "Paul", ("place",))
    return Cli(tmp_path)


def test_a_subject_is_forgotten_and_told_what_is_left(cli: Cli) -> None:
    done = cli.run("keys", "forget", "customer/c-7", "--yes")
    assert done.stdout.startswith("Forgot customer/c-7: its key is destroyed")
    assert "- Backups and copies of the key store" in done.stdout
    first, second = cli.lines("keys", "list")
    assert first == {"subject": "customer/c-8", "forgotten": None}
    assert second["subject"] == "customer/c-7" and second["forgotten"]
    assert "customer/c-7" in cli.run("keys", "list").stdout
    (again,) = cli.lines("keys", "forget", "customer/c-7", "--yes")
    assert again["forgotten"] == second["forgotten"] and len(again["beyond"]) == 5


def test_forgetting_asks_first_and_mistakes_are_named(cli: Cli, tmp_path: Path) -> None:
    assert "Add --yes" in cli.run("keys", "forget", "customer/c-7", code=2).stderr
    assert "never had a key" in cli.run("keys", "forget", "who", "--yes", code=2).stderr
    done = cli.run("keys", "list", "--keys", str(tmp_path / "none.db"), code=1)
    assert "There is no key store" in done.stderr and not (tmp_path / "none.db").exists()
