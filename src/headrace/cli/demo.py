"""`headrace demo`: the main job, on a log in a temporary folder."""

from __future__ import annotations

import sys
import tempfile
from typing import Annotated

import typer

from headrace.cli.failures import INTERRUPTED, say
from headrace.cli.options import AsJson, new_app
from headrace.cli.output import show, show_json

app = new_app()

_ONCE_EVENTS = 200_000
_LIVE_EVENTS = 3_000_000


@app.command()
def demo(
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
            help=f"How many page views to write: {_ONCE_EVENTS:,} with --once, and else as many "
            "as come in ten minutes.",
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
    """Count page views as they come, and see that the counts are right.

    A generator writes page views into a log: most in order, some late, a few broken. The
    pipeline in pipelines/pageviews.py counts them on Spark, per page and minute of event time,
    which goes by faster than the clock. Ctrl-C ends the writing.

    At the end everything is counted again, by SQL over the log's own files. The exit code is 0
    only if the counts and the late page views are the same and nothing is unaccounted for.
    """
    # Only now, since it brings Spark's own modules.
    from headrace.cli.demonstration.screen import summary
    from headrace.cli.demonstration.stage import perform

    once = once or not sys.stdout.isatty()
    with tempfile.TemporaryDirectory(prefix="headrace-demo-", ignore_cleanup_errors=True) as folder:
        try:
            account = perform(
                log or f"file:{folder}/log",
                events=events or (_ONCE_EVENTS if once else _LIVE_EVENTS),
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
            say("Keep the log to look at it: headrace demo --log file:./demo")
    if not account.holds:
        raise typer.Exit(1)
