"""`headrace demo`: the main job, on a log in a temporary folder."""

from __future__ import annotations

import sys
import tempfile
from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.failures import INTERRUPTED, say
from headrace.cli.options import AsJson, new_app
from headrace.cli.output import show, show_json

app = new_app()


class Which(StrEnum):
    """What can be seen."""

    PAGEVIEWS = "pageviews"
    FRAUD = "fraud"


_ONCE_EVENTS = {Which.PAGEVIEWS: 200_000, Which.FRAUD: 20_000}
_LIVE_EVENTS = {Which.PAGEVIEWS: 3_000_000, Which.FRAUD: 600_000}


@app.command()
def demo(
    which: Annotated[
        Which,
        typer.Argument(metavar="pageviews|fraud", help="What to see.", show_default=True),
    ] = Which.PAGEVIEWS,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Run to the end and exit, without anybody watching, as where there is no "
            "terminal.",
        ),
    ] = False,
    events: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How many page views or transactions to write: "
            f"{_ONCE_EVENTS[Which.PAGEVIEWS]:,} or {_ONCE_EVENTS[Which.FRAUD]:,} with --once, and "
            "else as many as come in ten minutes.",
        ),
    ] = None,
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
    """Count page views as they come, or flag fraud, and see that it is right.

    A generator writes page views into a log: most in order, some late, a few broken. The
    pipeline in pipelines/pageviews.py counts them on Spark, per page and minute of event time,
    which goes by faster than the clock. Ctrl-C ends the writing.

    With `fraud`, cards are used, some of them by thieves, and pipelines/fraud.py flags what they
    do. At the end it is told what got through, and what would have with a batch every hour.

    At the end everything is counted again, from the log's own files. The exit code is 0 only if
    that comes to the same and nothing is unaccounted for.
    """
    # Only now, since it brings Spark's own modules.
    if which == Which.FRAUD:
        from headrace.cli.demonstration.fraud.screen import summary
        from headrace.cli.demonstration.fraud.stage import perform
    else:
        from headrace.cli.demonstration.screen import summary  # type: ignore[assignment]
        from headrace.cli.demonstration.stage import perform  # type: ignore[assignment]

    once = once or not sys.stdout.isatty()
    with tempfile.TemporaryDirectory(prefix="headrace-demo-", ignore_cleanup_errors=True) as folder:
        try:
            account = perform(
                log or f"file:{folder}/log",
                events=events or (_ONCE_EVENTS if once else _LIVE_EVENTS)[which],
                once=once,
                quiet=json,
            )
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
    if json:
        show_json(account.to_json())
    else:
        show(summary(account))
        if log is None and not once:
            say(f"Keep the log to look at it: headrace demo {which} --log file:./demo")
    if not account.holds:
        raise typer.Exit(1)
