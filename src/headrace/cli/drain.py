"""`headrace drain`: the last run of an application, after which nothing is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from headrace.cli.failures import say
from headrace.cli.loading import load_app
from headrace.cli.options import DEFAULT_LOG, AppLogUrl, AppReference, AsJson, Yes, confirm, new_app
from headrace.cli.output import moment, show, show_json

if TYPE_CHECKING:
    from headrace.application.run import StepProgress

app = new_app()


@app.command()
def drain(
    reference: AppReference,
    *,
    log: AppLogUrl = None,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Close all windows of an application that gets no more rows.

    It is run until it has caught up, then the frontier of each topic it reads is moved past all of
    its windows, and it is run again, so that every row of its views is final. Rows that come to
    these topics later are late for those windows, and so they are for other applications.
    """
    declared = load_app(reference)
    url = log or declared.log or DEFAULT_LOG
    confirm(
        f"Close all windows of {declared.name!r}? Rows that come later for them will be late.",
        yes=yes,
    )
    # Only now, when there is something to run: this brings Spark's own modules.
    from headrace.application.drain import close_windows
    from headrace.cli.running import run_watched
    from headrace.cli.step_tables import step_json, summary
    from headrace.log import open_log
    from headrace.plan.source_options import BatchLimits
    from headrace.runtime.session import SparkSettings

    def catch_up() -> list[StepProgress]:
        steps, code = run_watched(
            declared,
            url,
            until_caught_up=True,
            fresh=False,
            settings=SparkSettings(),
            batch_limits=BatchLimits(),
        )
        if code:
            raise typer.Exit(code)
        return steps

    catch_up()
    with open_log(url, create=False) as opened:
        for topic, end in sorted(close_windows(declared, opened).items()):
            say(f"The frontier of topic {topic!r} is at {moment(end)} now")
    steps = catch_up()
    if json:
        for step in steps:
            show_json(step_json(declared, step))
    else:
        show(summary(declared, steps))
