"""Running an application for somebody who watches, until it is done or asked to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from headrace.application.run import StepProgress, start
from headrace.cli.failures import INTERRUPTED, say
from headrace.cli.output import span
from headrace.cli.step_tables import Rates, live_table, plain_line
from headrace.clock import SECOND, Clock, SystemClock
from headrace.log import DEFAULT_LOG
from headrace.pipeline.app import App, Latency
from headrace.plan.source_options import BatchLimits
from headrace.plan.steps import steps_of
from headrace.runtime.realtime.qualify import check_real_time
from headrace.runtime.realtime.settings import RealTime
from headrace.runtime.session import SparkSettings

_LOOK = 0.25
_LINE_EVERY = 5 * SECOND

Tell = Callable[[Sequence[StepProgress]], None]


class Asked:
    """Whether Ctrl-C or a signal to terminate has asked this process to stop."""

    def __init__(self) -> None:
        self.signal = 0

    @property
    def code(self) -> int:
        """What to exit with: 0 if nobody asked."""
        return 128 + self.signal if self.signal else 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take note of the first signal, and let the second one interrupt."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._hear) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number


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
) -> tuple[list[StepProgress], int]:
    """Run an application; returns what became of all rows, and the code to exit with."""
    # What cannot be run is refused before anybody waits for Spark.
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
            ) as running,
            # Spark has a handler for Ctrl-C of its own, which cancels what is being computed.
            asked.listening(),
        ):
            while not running.wait(_LOOK) and not asked.signal:
                tell(running.progress())
            running.stop()
            return running.progress(), asked.code
    except KeyboardInterrupt:  # while Spark was starting, or for the second time
        sys.exit(INTERRUPTED)


@contextlib.contextmanager
def shown(app: App, purpose: str = "") -> Iterator[Tell]:
    """A function that shows how the steps are doing: drawn on a terminal, else in lines."""
    clock = SystemClock()
    rates = Rates(clock)
    if not sys.stderr.isatty():
        say(f"Starting Spark {purpose or f'to run {app.name!r}'} ...")
        yield _Lines(app, rates, clock).tell
        return
    began = clock.monotonic()
    steps: Sequence[StepProgress] = ()
    spinner = Spinner("dots")

    def look() -> Spinner | Table:
        if steps:
            return live_table(app, steps, rates)
        spinner.update(text=f"starting Spark ... {span((clock.monotonic() - began) / SECOND)}")
        return spinner

    def tell(progress: Sequence[StepProgress]) -> None:
        nonlocal steps
        rates.note(progress)
        steps = progress

    # Standard error of its own: while Spark starts, what others write there goes to a file.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        console = Console(file=terminal, highlight=False)
        # Drawn by a thread of its own, since the start of Spark keeps this one busy.
        with Live(get_renderable=look, console=console, transient=True, refresh_per_second=4):
            yield tell


class _Lines:
    """A line for each step every few seconds."""

    def __init__(self, app: App, rates: Rates, clock: Clock) -> None:
        self._app = app
        self._rates = rates
        self._clock = clock
        self._due = 0

    def tell(self, steps: Sequence[StepProgress]) -> None:
        self._rates.note(steps)
        if self._clock.monotonic() < self._due:
            return
        self._due = self._clock.monotonic() + _LINE_EVERY
        for step in steps:
            say(plain_line(self._app, step, self._rates))
