"""`headrace demo`: a log at work, and what a crash does to it."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from rich.live import Live

from headrace.cli.demonstration.check import Finding, check
from headrace.cli.demonstration.plan import make_plan
from headrace.cli.demonstration.run import Story, View, create_topic
from headrace.cli.demonstration.screen import draw, plain_line, plain_note, summary
from headrace.cli.failures import say
from headrace.cli.options import AsJson, new_app
from headrace.cli.output import out, show, show_json
from headrace.log import open_log

app = new_app()


@app.command()
def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Run to the end and exit, without anybody watching.")
    ] = False,
    events: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="How many events to write.", show_default=True),
    ] = 10_000,
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            metavar="URL",
            help="Keep the log, to look at afterwards; by default it is in a temporary folder.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Watch a log at work, kill parts of it, and see that nothing is lost.

    A producer writes orders, and three consumer groups read them at their own speed. In the
    middle the producer and a consumer are killed (kill -9) and started again. At the end every
    event is accounted for; the exit code is 0 only if none was lost.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        url = log or f"file:{folder}/log"
        with open_log(url) as opened:
            plan = make_plan(url, folder, create_topic(opened), events)
            with _screen(json) as tell:
                view = Story(opened, plan).run(tell)
            findings = check(opened, plan, view.acknowledged)
    if json:
        show_json(_as_json(view, findings))
    else:
        show(summary(findings, view.seconds))
        if log is None and not once:
            say("Keep the log to look at it: headrace demo --log file:./demo")
    if not all(finding.holds for finding in findings):
        raise typer.Exit(1)


@contextlib.contextmanager
def _screen(quiet: bool) -> Iterator[Callable[[View], None]]:
    """A function that shows a view: drawn in a terminal, else in lines, one each second."""
    if quiet:
        yield lambda view: None
    elif sys.stdout.isatty():
        console = out()
        with Live(console=console, auto_refresh=False) as live:
            yield lambda view: live.update(draw(view, console.width), refresh=True)
    else:
        yield _Lines().tell


class _Lines:
    """Views as plain lines."""

    def __init__(self) -> None:
        self._second = -1
        self._notes = 0

    def tell(self, view: View) -> None:
        lines = [plain_note(note) for note in view.notes[self._notes :]]
        self._notes = len(view.notes)
        if int(view.seconds) > self._second:
            self._second = int(view.seconds)
            lines.append(plain_line(view))
        for line in lines:
            print(line, flush=True)


def _as_json(view: View, findings: list[Finding]) -> dict[str, object]:
    return {
        "events": view.plan.events,
        "acknowledged": view.acknowledged,
        "seconds": round(view.seconds, 3),
        "topic": view.plan.topic,
        "log": view.plan.url,
        "holds": all(finding.holds for finding in findings),
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }
