"""The help is complete, and fast."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from headrace.cli import queue
from headrace.cli.main import COMMANDS, app
from headrace.cli.options import DEFAULT_LOG
from headrace.cli.topics import SETTINGS, SETTINGS_HELP, read_settings
from headrace.errors import InvalidSetting
from headrace.log import TopicSettings, address
from headrace.queue import QueueSettings


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command without subcommands, by its words."""
    if not hasattr(command, "list_commands"):
        yield " ".join(path), command
        return
    for name in command.list_commands(None):
        yield from leaves(command.get_command(None, name), (*path, name))


LEAVES = dict(leaves(get_command(app)))


def test_every_command_of_the_design_is_there() -> None:
    topics = (
        "create", "list", "describe", "lateness", "advance", "alter", "delete", "compact", "upkeep",
    )  # fmt: skip
    groups = ("list", "describe", "reset", "delete")
    queues = (
        "create", "alter", "put", "work", "show", "redrive", "purge", "seek", "delete",
    )  # fmt: skip
    domains = ("describe", "send", "run", "list", "show", "history", "commands", "what-if")
    assert set(LEAVES) == {
        *(f"topics {verb}" for verb in topics),
        *(f"groups {verb}" for verb in groups),
        *(f"queue {verb}" for verb in queues),
        *(f"domain {verb}" for verb in domains),
        *(f"views {verb}" for verb in ("list", "show", "query", "export")),
        *(f"stores {verb}" for verb in ("list", "run", "rebuild")),
        "log check",
        "log repair",
        "backup",
        "restore",
        *(f"kafka {verb}" for verb in ("up", "status", "down", "tool")),
        *("produce", "consume", "show", "run", "rebuild", "doctor", "drain", "demo", "bench"),
        "studio",
        *(f"cdc {verb}" for verb in ("attach", "run", "status", "snapshot", "heal")),
        *("cdc undo", "cdc detach"),
        *(f"keys {verb}" for verb in ("list", "forget")),
        "search",
        "verify",
    }


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_and_every_option_has_a_help_text(name: str) -> None:
    command = LEAVES[name]
    assert command.help
    for param in command.params:
        assert param.help, f"{name} {param.opts}"


# The help of Kafka's own tools is not ours.
@pytest.mark.parametrize("name", sorted(set(LEAVES) - {"kafka tool"}))
def test_every_command_can_print_json(name: str) -> None:
    assert "--json" in {option for param in LEAVES[name].params for option in param.opts}


NO_LOG = {"bench", *(n for n in LEAVES if n.startswith(("kafka ", "keys ", "domain describe")))}


@pytest.mark.parametrize("name", sorted(set(LEAVES) - NO_LOG))
def test_every_command_that_touches_a_log_takes_its_url(name: str) -> None:
    assert "--log" in {option for param in LEAVES[name].params for option in param.opts}


def test_the_list_of_commands_says_what_each_command_says_of_itself() -> None:
    root: Any = get_command(app)
    for name, text in COMMANDS.items():
        command = root.get_command(None, name)
        assert command.help.splitlines()[0] == text


def test_the_default_log_is_the_one_the_library_opens() -> None:
    assert address.DEFAULT_LOG == DEFAULT_LOG
    assert address.VARIABLE == "HEADRACE_LOG"


def test_the_help_explains_every_setting_of_a_queue() -> None:
    assert list(queue.SETTINGS) == list(QueueSettings().to_text())
    assert all(f"  {name} " in queue.SETTINGS_HELP for name in queue.SETTINGS)
    assert max(len(line) for line in queue.SETTINGS_HELP.splitlines()) <= 76


def test_the_help_of_set_explains_every_topic_setting() -> None:
    assert list(SETTINGS) == list(TopicSettings().to_text())
    for name, text in SETTINGS.items():
        assert text
        assert name in SETTINGS_HELP


def test_a_line_of_the_settings_help_fits_a_narrow_terminal() -> None:
    # The help is indented by two spaces and 78 columns wide in a terminal of 80.
    assert max(len(line) for line in SETTINGS_HELP.splitlines()) <= 76


def test_a_setting_is_a_name_and_a_value() -> None:
    assert read_settings(["retention=7d", "max-record-bytes = 2MiB"]) == {
        "retention": "7d",
        "max_record_bytes": "2MiB",
    }
    assert read_settings(["tier=s3://bucket/?a=b"]) == {"tier": "s3://bucket/?a=b"}
    with pytest.raises(InvalidSetting, match="'retention' is not a setting"):
        read_settings(["retention"])


def test_the_help_loads_no_command_and_so_neither_their_tables() -> None:
    program = (
        "import sys\n"
        "from headrace.cli.main import app\n"
        "code = 0\n"
        "try:\n"
        "    app(['--help'], prog_name='headrace')\n"
        "except SystemExit as end:\n"
        "    code = end.code\n"
        "loaded = {name for name in sys.modules if name.startswith('headrace.cli.')}\n"
        "loaded -= {f'headrace.cli.{name}' for name in ('main', 'failures', 'options')}\n"
        "loaded |= {'rich'} & sys.modules.keys()\n"
        "sys.exit(str(loaded) if loaded else code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)
