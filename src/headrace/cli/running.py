"""Runs and rebuilds with live progress, until they are done or interrupted."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from headrace.application.rebuild.rebuild import Rebuild
from headrace.application.run import Run, StepProgress, start
from headrace.cli.asked import Asked
from headrace.cli.failures import INTERRUPTED, say
from headrace.cli.step_tables import Rates, live_table, plain_line
from headrace.cli.stores import news
from headrace.clock import SECOND, Clock, SystemClock
from headrace.log import DEFAULT_LOG
from headrace.pipeline.app import App, Latency
from headrace.plan.source_options import BatchLimits
from headrace.plan.steps import steps_of
from headrace.runtime.realtime.qualify import check_real_time
from headrace.runtime.realtime.settings import RealTime
from headrace.runtime.session import SparkSettings
from headrace.store.status import StoreStatus
from headrace.wording import span

_LOOK = 0.25
_LINE_EVERY = 5 * SECOND

Tell = Callable[[Sequence[StepProgress]], None]
Act = Callable[[Rebuild, Callable[[StepProgress], None], Callable[[], None]], None]
"""Uses a rebuilt view. It may report more progress, and then ends the live display."""


def run_watched(
    app: App,
    log: str | None,
    *,
    until_caught_up: bool,
    fresh: bool,
    settings: SparkSettings,
    batch_limits: BatchLimits,
    latency: Latency | None = None,
    real_time: RealTime | None = None,
    stores: bool = True,
) -> tuple[list[StepProgress], int]:
    """Run an application. Return the final progress of its steps, and the exit code."""
    # Refuse what cannot run before Spark starts.
    if (latency or app.latency) == "real-time":
        check_real_time(app, log or app.log or DEFAULT_LOG, until_caught_up=until_caught_up)
    else:
        steps_of(app)
    asked = Asked()
    try:
        with (
            shown(app) as tell,
            start(
                app,
                log,
                until_caught_up=until_caught_up,
                latency=latency,
                fresh=fresh,
                settings=settings,
                batch_limits=batch_limits,
                real_time=real_time,
                stores=stores,
            ) as running,
            # After Spark, whose own handler for Ctrl-C would cancel the computation.
            asked.listening(),
        ):
            followed: list[StoreStatus] = []
            while not running.wait(_LOOK) and not asked.signal:
                tell(running.progress())
                if isinstance(running, Run):
                    before, followed = followed, running.stores()
                    for line in news(before, followed):
                        say(line)
            running.stop()
            return running.progress(), asked.code
    except KeyboardInterrupt:  # while Spark was starting, or for the second time
        sys.exit(INTERRUPTED)


def rebuild_watched(
    app: App,
    view: str,
    log: str,
    act: Act,
    *,
    until: datetime | int | None,
    back: bool,
    settings: SparkSettings,
    batch_limits: BatchLimits,
) -> None:
    """Build a view with live progress, and call `act`. Ctrl-C keeps what was built."""
    asked = Asked()
    try:
        with (
            Rebuild(
                app,
                view,
                log,
                until=until,
                back=back,
                settings=settings,
                batch_limits=batch_limits,
            ) as building,
            contextlib.ExitStack() as drawing,
        ):
            show = drawing.enter_context(shown(app, f"to rebuild {view!r}"))
            listening = drawing.enter_context(contextlib.ExitStack())
            heard = False

            def tell(progress: StepProgress) -> None:
                nonlocal heard
                if not heard:
                    # After Spark, which has its own handler for Ctrl-C and is started by now.
                    listening.enter_context(asked.listening())
                    heard = True
                if asked.signal:
                    raise KeyboardInterrupt
                show([progress])

            building.build(tell)
            act(building, tell, drawing.close)
    except KeyboardInterrupt:
        sys.exit(asked.code or INTERRUPTED)


@contextlib.contextmanager
def shown(app: App, purpose: str = "") -> Iterator[Tell]:
    """A function that shows progress: a live table on a terminal, else lines."""
    clock = SystemClock()
    rates = Rates(clock)
    if not sys.stderr.isatty():
        say(f"Starting Spark {purpose or f'to run {app.name!r}'} ...")
        yield _Lines(rates, clock).tell
        return
    began = clock.monotonic()
    steps: Sequence[StepProgress] = ()
    spinner = Spinner("dots")

    def look() -> Spinner | Table:
        if steps:
            return live_table(steps, rates)
        spinner.update(text=f"starting Spark ... {span((clock.monotonic() - began) / SECOND)}")
        return spinner

    def tell(progress: Sequence[StepProgress]) -> None:
        nonlocal steps
        rates.note(progress)
        steps = progress

    # A copy of standard error: while Spark starts, the original goes to a file.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        console = Console(file=terminal, highlight=False)
        # Drawn by another thread, since the start of Spark blocks this one.
        with Live(get_renderable=look, console=console, transient=True, refresh_per_second=4):
            yield tell


class _Lines:
    """Progress lines, one per step every few seconds."""

    def __init__(self, rates: Rates, clock: Clock) -> None:
        self._rates = rates
        self._clock = clock
        self._due = 0

    def tell(self, steps: Sequence[StepProgress]) -> None:
        self._rates.note(steps)
        if self._clock.monotonic() < self._due:
            return
        self._due = self._clock.monotonic() + _LINE_EVERY
        for step in steps:
            say(plain_line(step, self._rates))
