"""`headrace drain`: close all windows of an application."""

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
    reference: AppReference, *, log: AppLogUrl = None, yes: Yes = False, json: AsJson = False
) -> None:
    """Close all open windows of an application whose input has ended.

    It runs the application until it has caught up, advances the frontier of each topic that it
    reads past all of its windows, and runs it again, so that every row of its views is final. Rows
    that arrive later in these topics are late for those windows, also in other applications.
    """
    declared = load_app(reference)
    url = log or declared.log or DEFAULT_LOG
    confirm(
        f"Close all windows of {declared.name!r}? Rows that arrive for them later will be late.",
        yes=yes,
    )
    from headrace.application.chains import stages_of
    from headrace.application.drain import close_windows
    from headrace.cli.running import run_watched
    from headrace.cli.step_tables import step_json, summary
    from headrace.log import open_log
    from headrace.plan.source_options import BatchLimits
    from headrace.plan.steps import steps_of
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

    steps = catch_up()
    for stage in stages_of(steps_of(declared)):
        with open_log(url, create=False) as opened:
            moved = close_windows(declared, opened, stage)
        for topic, end in sorted(moved.items()):
            say(f"The frontier of topic {topic!r} is now at {moment(end)}")
        if moved:
            steps = catch_up()
    if json:
        for step in steps:
            show_json(step_json(declared.name, step))
    else:
        show(*summary(steps))
