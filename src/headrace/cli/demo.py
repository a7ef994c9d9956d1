"""`headrace demo`: a live pipeline on a log in a temporary folder."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.failures import INTERRUPTED, say
from headrace.cli.options import AsJson, new_app
from headrace.cli.output import show, show_json
from headrace.cli.studio import require_studio
from headrace.errors import MissingExtra

app = new_app()


class Which(StrEnum):
    """The demos."""

    PAGEVIEWS = "pageviews"
    FRAUD = "fraud"
    CATALOG = "catalog"
    BANK = "bank"


_ONCE_EVENTS = {
    Which.PAGEVIEWS: 200_000, Which.FRAUD: 20_000, Which.CATALOG: 20_000, Which.BANK: 1_000
}  # fmt: skip
_LIVE_EVENTS = {
    Which.PAGEVIEWS: 3_000_000, Which.FRAUD: 600_000, Which.CATALOG: 20_000, Which.BANK: 1_000
}  # fmt: skip


@app.command()
def demo(
    which: Annotated[
        Which,
        typer.Argument(
            metavar="pageviews|fraud|catalog|bank", help="The demo to run.", show_default=True
        ),
    ] = Which.PAGEVIEWS,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Run to the end and exit, without a live screen. Implied without a terminal.",
        ),
    ] = False,
    events: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of page views, transactions, products or commands. Default: "
            f"{_ONCE_EVENTS[Which.PAGEVIEWS]:,} or {_ONCE_EVENTS[Which.FRAUD]:,} with --once, "
            f"else ten minutes of them; {_ONCE_EVENTS[Which.CATALOG]:,} products; "
            f"{_ONCE_EVENTS[Which.BANK]:,} commands.",
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            "--log", metavar="URL", help="Keep the log at this URL. Default: a temporary folder."
        ),
    ] = None,
    studio: Annotated[
        bool,
        typer.Option(
            "--studio/--no-studio",
            help="Show the running demo in a browser too, at the printed address. Not with --once.",
        ),
    ] = True,
    json: AsJson = False,
) -> None:
    """Count page views, flag fraud, keep stores up to date or run a bank, and verify the results.

    A generator writes page views into a log: most in order, some late, a few broken. The
    pipeline in pipelines/pageviews.py counts them on Spark, per page and minute of event time,
    which runs faster than the clock. Ctrl-C stops the generator.

    With `fraud`, the generator writes card transactions, some of them by thieves, and
    pipelines/fraud.py flags those. The summary compares the fraud that got through with that of an
    hourly batch.

    With `catalog`, an online shop writes to a database, and pipelines/catalog.py keeps a search
    index, a cache and a warehouse up to date with it. The demo shows the lag of each, kills the
    follower of the index, deletes 10,000 products and brings them back, and compares every store
    with the database.

    With `bank`, people send commands to the accounts of pipelines/bank.py, without Spark: an
    overdraft is refused, and a transfer to nobody comes back. The demo asks for balances in the
    past, replays all events from scratch, and tries another rule on the history.

    At the end everything is counted again from the log's own files. The exit code is 0 only if
    both counts agree and every row is accounted for.
    """
    # Imported here, since it loads Spark's modules.
    if which == Which.FRAUD:
        from headrace.cli.demonstration.fraud.screen import summary
        from headrace.cli.demonstration.fraud.stage import perform
    elif which == Which.CATALOG:
        from headrace.cli.demonstration.catalog.screen import summary  # type: ignore[assignment]
        from headrace.cli.demonstration.catalog.stage import (  # type: ignore[assignment]
            perform,
            settle,
        )
    elif which == Which.BANK:
        from headrace.cli.demonstration.bank.screen import summary  # type: ignore[assignment]
        from headrace.cli.demonstration.bank.stage import perform  # type: ignore[assignment]
    else:
        from headrace.cli.demonstration.screen import summary  # type: ignore[assignment]
        from headrace.cli.demonstration.stage import perform  # type: ignore[assignment]

    once = once or not sys.stdout.isatty()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-demo-", ignore_cleanup_errors=True) as folder,
        contextlib.ExitStack() as beside,
    ):
        url = log or f"file:{folder}/log"
        if which == Which.CATALOG:
            settle(url)  # before anybody loads the pipeline
        # The bank is done before a browser is open.
        if (
            studio
            and not once
            and which != Which.BANK
            and (address := beside.enter_context(_studio(url, which)))
        ):
            say(f"The studio is at {address}")
        try:
            account = perform(
                url,
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
            say(f"To keep the log: headrace demo {which} --log file:./demo")
    if not account.holds:
        raise typer.Exit(1)


@contextlib.contextmanager
def _studio(url: str, which: Which) -> Iterator[str | None]:
    """Serve a studio of the demo beside it; yield its address, or None if it is not installed."""
    try:
        require_studio()
    except MissingExtra:
        yield None
        return
    from headrace.cli.demonstration.stage import pipeline_file
    from headrace.cli.loading import load_app
    from headrace.studio.server import in_background
    from headrace.studio.settings import StudioSettings

    reference = f"{pipeline_file(f'{which}.py')}:app"
    declared = load_app(reference)
    settings = StudioSettings(url, (reference,), port=0, declared={declared.name: declared})
    with in_background(settings) as address:
        yield address
