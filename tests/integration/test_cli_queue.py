"""`queue` creates queues, puts messages, works on them and shows what became of them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from headrace.log import open_log
from tests.integration.test_cli_running import Cli, ended
from tests.waiting import wait_until

TASKS = """
import asyncio, time
from headrace.queue import Send

def send(message):
    if message.text == "bad":
        raise ValueError("no such address")
    return Send("sent", message.text)

async def shout(message):
    await asyncio.sleep(0)
    return Send("sent", message.text.upper())

def slow(message):
    open(message.text + ".begun", "w").close()
    time.sleep(1)
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.py").write_text(TASKS)
    return Cli(tmp_path)


def create(cli: Cli, *settings: str) -> None:
    with cli.open() as log:
        log.create_topic("sent")
    sets = [word for setting in ("backoff=0s", *settings) for word in ("--set", setting)]
    cli.run("queue", "create", "emails", *sets)


def sent(cli: Cli) -> list[str]:
    return [record.value.decode() for record in cli.records("sent")]


def test_a_queue_is_created_once(cli: Cli) -> None:
    create(cli, "lease=5m")
    assert "already exists" in cli.run("queue", "create", "emails", code=2).stderr
    known = cli.json("queue", "create", "emails", "--if-not-exists")
    assert (known["topic"], known["settings"]["lease"]) == ("emails", "5m")


def test_messages_come_from_words_or_lines_and_a_function_works_on_them(cli: Cli) -> None:
    create(cli)
    cli.run("queue", "put", "emails", "one", "two")
    assert cli.json("queue", "put", "emails", input="three\nfour\n")["put"] == 2
    report = cli.json("queue", "work", "emails", "tasks:send", "-c", "2", "--until-empty")
    assert report == {"queue": "emails", "accepted": 4, "failed": 0, "rejected": 0, "lost": 0}
    assert sorted(sent(cli)) == ["four", "one", "three", "two"]


def test_a_coroutine_function_works_too(cli: Cli) -> None:
    create(cli)
    cli.run("queue", "put", "emails", "one")
    cli.run("queue", "work", "emails", "tasks.py:shout", "--until-empty")
    assert sent(cli) == ["ONE"]


def test_dead_letters_are_shown_with_their_reason_and_redriven(cli: Cli) -> None:
    create(cli, "max_deliveries=2")
    cli.run("queue", "put", "emails", "bad", "good")
    said = cli.run("queue", "work", "emails", "tasks:send", "--until-empty").stderr
    assert said == "Accepted 1 message; 1 failure, which came again; 1 dead letter\n"
    shown = cli.run("queue", "show", "emails").stdout
    assert "failed 2 times, the last time: ValueError: no such address" in shown
    (line,) = cli.lines("queue", "show")
    assert (line["name"], line["waiting"], line["dead"]) == ("emails", 0, 1)
    assert cli.json("queue", "redrive", "emails", "--reason", "mailbox full")["redriven"] == 0
    assert cli.json("queue", "redrive", "emails", "--reason", "no such")["redriven"] == 1
    assert cli.json("queue", "show", "emails")["waiting"] == 1


def test_a_past_state_is_shown(cli: Cli) -> None:
    create(cli)
    cli.run("queue", "put", "emails", "one", "two")
    with cli.open() as log:
        put = log.head()
    cli.run("queue", "work", "emails", "tasks:send", "--until-empty")
    past = cli.json("queue", "show", "emails", "--at", f"commit:{put}")
    assert (past["at"], past["waiting"]) == (f"commit:{put}", 2)
    assert "unfinished" in cli.run("queue", "show", "emails", "--at", f"commit:{put}").stdout


def test_a_queue_is_purged_sought_and_deleted_after_a_question(cli: Cli) -> None:
    create(cli)
    cli.run("queue", "put", "emails", "one", "two")
    assert "--yes" in cli.run("queue", "purge", "emails", code=2).stderr
    assert cli.json("queue", "purge", "emails", "--yes")["purged"] == 2
    assert cli.json("queue", "seek", "emails", "--to", "1", "--yes")["waiting"] == 1
    cli.run("queue", "alter", "emails", "--set", "lease=1m")
    assert cli.json("queue", "show", "emails")["settings"]["lease"] == "1m"
    assert cli.json("queue", "delete", "emails", "--yes")["deleted"] == "emails"
    assert "There are no queues" in cli.run("queue", "show").stderr


def test_mistakes_are_told_in_a_line(cli: Cli) -> None:
    create(cli)
    assert "no queue 'letters'" in cli.run("queue", "put", "letters", "x", code=2).stderr
    wrong = cli.run("queue", "work", "emails", "tasks:sned", code=2).stderr
    assert "has no function 'sned'" in wrong and "send" in wrong
    assert "--set" not in cli.run("queue", "create", "x", "--set", "leese=1m", code=2).stdout


def test_a_signal_ends_a_worker_when_it_has_finished_what_it_began(
    cli: Cli, tmp_path: Path
) -> None:
    create(cli)
    cli.run("queue", "put", "emails", "one", "two", "three")
    process = cli.start("queue", "work", "emails", "tasks:slow", "--prefetch", "2")
    wait_until((tmp_path / "one.begun").exists)
    process.send_signal(signal.SIGTERM)
    code, _, said = ended(process)
    assert code == 128 + signal.SIGTERM
    assert "Stopping when" in said and "Accepted 1 message" in said
    state = cli.json("queue", "show", "emails")
    assert (state["unfinished"], state["acquired"]) == (2, 0)
    with open_log(cli.url) as log:
        outcomes = [
            row["outcome"] for b in log.read("emails.journal") for row in b.data.to_pylist()
        ]
    assert sorted(outcomes) == ["accepted", "created", "released"]
