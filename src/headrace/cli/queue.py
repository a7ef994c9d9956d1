"""`headrace queue`: work queues, and workers for them."""

from __future__ import annotations

import dataclasses
import sys
import threading
from typing import Annotated, Any

import typer

from headrace.cli import queue_tables as tables
from headrace.cli.asked import Asked
from headrace.cli.failures import say
from headrace.cli.modules import load_function
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, Yes, confirm, new_app, show_help
from headrace.cli.output import show_json
from headrace.cli.topics import read_settings
from headrace.errors import QueueExists
from headrace.log import open_log, parse_position
from headrace.log.settings import parse_span
from headrace.queue import (
    NewMessage,
    Worker,
    WorkReport,
    all_queues,
    alter_queue,
    create_queue,
    delete_queue,
    open_queue,
    purge,
    redrive,
    seek,
    state_at,
)
from headrace.wording import many

app = new_app()

SETTINGS = {
    "lease": "hand out again if its worker is silent for: 30s",
    "max_deliveries": "a dead letter after so many: 5, none",
    "backoff": "wait after a first failure, then double it: 1s, 0s",
    "max_backoff": "the longest wait after a failure: 5m",
    "delivery": "at-least-once, at-most-once",
    "ordered": "one message of a key at a time: true, false",
    "key_concurrency": "at most so many of a key at a time: 3, none",
    "key_rate": "so many messages of a key per second: 10, 0.5, none",
    "priorities": "higher priorities first: true, false",
    "max_messages": "the bound of unfinished messages: 100000, none",
    "overflow": "what a full queue does: block, refuse, drop",
}

_WIDTH = max(len(name) for name in SETTINGS)

SETTINGS_HELP = "\b\nSettings:\n" + "\n".join(
    f"  {name:{_WIDTH}} {text}" for name, text in SETTINGS.items()
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Set one of the settings below; may be repeated."
    ),
]
Position = Annotated[
    str,
    typer.Option(
        metavar="POSITION",
        help="earliest, latest, an offset (42), a time (2026-01-31T12:00:00Z) or a commit "
        "(commit:7).",
    ),
]


@app.callback(invoke_without_command=True)
def queue(ctx: typer.Context) -> None:
    """Hand out messages of a topic one at a time, to workers."""
    show_help(ctx)


@app.command("create", epilog=SETTINGS_HELP)
def create(
    name: Name,
    *,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="A topic whose records are the messages. Without it, the topic of the queue's "
            "name, which is created.",
        ),
    ] = None,
    partitions: Annotated[
        int, typer.Option(metavar="N", help="Partitions of a topic that is created.")
    ] = 1,
    start: Position = "earliest",
    settings: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the queue exists.")
    ] = False,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Create a queue, and the log if there is none.

    Several queues over one topic get every message each. Settlements are written to the topic
    NAME.journal, and dead letters to NAME.dead.
    """
    position = parse_position(start)
    with open_log(log) as opened:
        try:
            made = create_queue(
                opened,
                name,
                topic=topic,
                partitions=partitions,
                settings=read_settings(settings),
                start=position,
            )
        except QueueExists:
            if not if_not_exists:
                raise
            made = open_queue(opened, name)
        row = made.row
    if json:
        show_json({"name": row.name, "topic": row.topic, "settings": row.settings.to_text()})
    else:
        say(f"Queue {name!r} hands out the messages of topic {row.topic!r}")


@app.command("alter", epilog=SETTINGS_HELP)
def alter(
    name: Name, settings: Settings = None, log: LogUrl = DEFAULT_LOG, json: AsJson = False
) -> None:
    """Change settings of a queue. Limits per key change only while it is empty."""
    with open_log(log, create=False) as opened:
        row = alter_queue(opened, name, read_settings(settings))
    if json:
        show_json({"name": row.name, "settings": row.settings.to_text()})
    else:
        say(f"Changed queue {name!r}. A worker that runs keeps the old settings until it ends")


@app.command("put")
def put(
    name: Name,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MESSAGE]...",
            help="The messages. Without any, each line of standard input is one.",
            show_default=False,
        ),
    ] = None,
    *,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Their key.")] = None,
    priority: Annotated[
        int, typer.Option(metavar="N", help="Their priority; a higher one comes first.")
    ] = 0,
    delay: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Hand them out after this time: 10m.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="SPAN", help="How long to wait for room in a full queue.")
    ] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Put messages into a queue, in commits of many."""
    after = None if delay is None else parse_span(delay)
    lines = (line.rstrip(b"\n") for line in sys.stdin.buffer)
    messages = (NewMessage(v, key, (), priority, after) for v in (values or lines))
    with open_log(log, create=False) as opened, open_queue(opened, name) as found:
        done = found.put_many(messages, timeout=None if timeout is None else parse_span(timeout))
    if json:
        show_json({"queue": name, "put": done})
    else:
        say(f"Put {many(done, 'message')}")


@app.command("work")
def work(
    name: Name,
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function of a message: tasks:send or jobs/tasks.py:send. A coroutine function "
            "runs many messages in one thread.",
            show_default=False,
        ),
    ],
    *,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", metavar="N", help="Messages at a time.")
    ] = 1,
    prefetch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Messages to hold at most. By default as many as it handles in 250 ms.",
        ),
    ] = None,
    longest: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN", help="Give a message to another worker if it takes longer: 10m."
        ),
    ] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when the queue has no unfinished message.")
    ] = False,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Run a Python function on each message.

    Returning accepts the message, and an exception is a failure: the message comes again, later
    each time, and at last becomes a dead letter. Ctrl-C or SIGTERM ends the worker when it has
    finished what it has begun; a second one ends it at once.
    """
    handler = load_function(function)
    asked = Asked()
    with open_log(log, create=False) as opened, open_queue(opened, name) as found:
        worker = Worker(
            found,
            handler,
            concurrency=concurrency,
            prefetch=prefetch,
            longest=None if longest is None else parse_span(longest),
        )
        report = _watched(worker, asked, until_empty=until_empty, quiet=json)
    if json:
        show_json({"queue": name} | dataclasses.asdict(report))
    else:
        say(_words(report))
    raise typer.Exit(asked.code)


def _watched(worker: Worker, asked: Asked, *, until_empty: bool, quiet: bool) -> WorkReport:
    """Run a worker until it is done or a signal asks it to stop."""
    over = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            worker.run(until_empty=until_empty)
        except BaseException as error:
            failed.append(error)
        finally:
            over.set()

    # Python runs signal handlers in the main thread, so the worker has another.
    running = threading.Thread(target=run, name="headrace-worker", daemon=True)
    with asked.listening():
        running.start()
        while not over.wait(0.1):
            if asked.signal and not worker.stopping:
                worker.stop()
                if not quiet:
                    say("Stopping when the messages that were begun are finished")
    if failed:
        raise failed[0]
    return worker.report


def _words(report: WorkReport) -> str:
    words = f"Accepted {many(report.accepted, 'message')}"
    if report.failed:
        words += f"; {many(report.failed, 'failure')}, which came again"
    if report.rejected:
        words += f"; {many(report.rejected, 'dead letter')}"
    if report.lost:
        words += f"; {many(report.lost, 'lease')} lost"
    return words


@app.command("show")
def show_queue(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The queue; all without it.", show_default=False),
    ] = None,
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION", help="Its state at a past commit (commit:7) or time instead."
        ),
    ] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Show queues: waiting messages, leases and dead letters. With --json, one object per line."""
    with open_log(log, create=False) as opened:
        if name is None:
            states = [opened.queues().state(row) for row in all_queues(opened)]
            tables.show_all(states, json=json)
            return
        with open_queue(opened, name) as found:
            if at is not None:
                tables.show_past(state_at(found, parse_position(at)), json=json)
                return
            tables.show_one(found, json=json)


@app.command("redrive")
def redrive_dead(
    name: Name,
    *,
    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only those whose reason has this text in it."),
    ] = None,
    upto: Annotated[
        str,
        typer.Option(
            "--as-of",
            metavar="POSITION",
            help="Only those that were dead at a time or commit (commit:7).",
        ),
    ] = "latest",
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most so many.")] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Let dead letters wait again, as if they were new."""
    with open_log(log, create=False) as opened, open_queue(opened, name) as found:
        done = redrive(found, reason=reason, upto=parse_position(upto), limit=limit)
    _report(json, {"queue": name, "redriven": done}, f"{many(done, 'message')} wait again")


@app.command("purge")
def purge_queue(
    name: Name, yes: Yes = False, log: LogUrl = DEFAULT_LOG, json: AsJson = False
) -> None:
    """Remove every message that is not finished. The topic keeps them as history."""
    with open_log(log, create=False) as opened, open_queue(opened, name) as found:
        unfinished = found.state().unfinished
        confirm(f"Remove {many(unfinished, 'message')} from queue {name!r}?", yes=yes)
        done = purge(found)
    _report(json, {"queue": name, "purged": done}, f"Removed {many(done, 'message')}")


@app.command("seek")
def seek_queue(
    name: Name, to: Position, yes: Yes = False, log: LogUrl = DEFAULT_LOG, json: AsJson = False
) -> None:
    """Go on from another position: what comes from there on waits, finished or not."""
    position = parse_position(to)
    with open_log(log, create=False) as opened, open_queue(opened, name) as found:
        confirm(f"Let the messages of queue {name!r} from {to} on wait again?", yes=yes)
        seek(found, position)
        waiting = found.state().unfinished
    _report(json, {"queue": name, "waiting": waiting}, f"{many(waiting, 'message')} wait")


@app.command("delete")
def delete(name: Name, yes: Yes = False, log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Delete a queue. Its messages, journal and dead letters stay as topics."""
    with open_log(log, create=False) as opened:
        confirm(f"Delete queue {name!r}?", yes=yes)
        delete_queue(opened, name)
    _report(json, {"deleted": name}, f"Deleted queue {name!r}")


def _report(json: bool, values: dict[str, Any], words: str) -> None:
    if json:
        show_json(values)
    else:
        say(words)
