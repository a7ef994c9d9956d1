"""A secret in the address of a log appears neither in output nor in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_cli_running import Cli

CANARY = "canary-in-the-address"
SETTINGS = "security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&sasl.username=bob&timeout=1s"
URL = f"kafka://127.0.0.1:1?{SETTINGS}&sasl.password={CANARY}"
APP = """
import headrace as hr

app = hr.App("shop")
app.publish("loud", hr.filter(app.topic("orders", schema="name string"), "name != ''"))
"""

COMMANDS = [
    ("topics", "list"),
    ("topics", "create", "t"),
    ("produce", "t"),
    ("consume", "t"),
    ("groups", "list"),
    ("views", "list"),
    ("views", "query", "SELECT 1"),
    ("backup", "copy"),
    ("restore", "copy"),
    ("log", "check"),
    ("run", "shop.py:app"),
    ("doctor", "shop.py:app"),
    ("drain", "shop.py:app"),
]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    (tmp_path / "shop.py").write_text(APP)
    return Cli(tmp_path)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "url",
    [URL, URL.replace("kafka:", "kafkaesque:"), f"kafka://bob:{CANARY}@127.0.0.1:1"],
    ids=["kafka", "unknown", "user"],
)
def test_a_command_that_fails_does_not_print_a_secret_of_its_address(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], url: str
) -> None:
    done = cli.invoke(*words, "--log", url)
    assert done.exit_code in (1, 2)
    assert "error: " in done.stderr
    assert CANARY not in done.output
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and CANARY in p.read_text("latin-1")]


def test_a_secret_on_the_command_line_is_warned_of_and_not_shown(cli: Cli) -> None:
    printed = cli.invoke("topics", "list", "--log", URL).stderr
    assert "every user of this machine can read sasl.password in the process list" in printed
    assert "Set HEADRACE_KAFKA_SASL_PASSWORD instead" in printed


def test_a_secret_that_others_cannot_see_is_not_warned_of(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "settings").write_text(f"sasl.password={CANARY}\n")
    plain = f"kafka://127.0.0.1:1?{SETTINGS}"
    printed = [
        cli.invoke("topics", "list", "--log", f"{plain}&config={tmp_path / 'settings'}").stderr
    ]
    monkeypatch.setenv("HEADRACE_KAFKA_SASL_PASSWORD", CANARY)
    printed += [cli.invoke("topics", "list", "--log", plain).stderr]
    cli.url = URL  # which is then in an environment variable
    printed += [cli.invoke("topics", "list").stderr]
    for text in printed:
        assert "does not answer" in text
        assert "warning" not in text
        assert CANARY not in text
