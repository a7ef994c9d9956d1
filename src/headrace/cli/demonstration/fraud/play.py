"""Run the fraud demo: the cards and the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.application.run import Run, StepProgress
from headrace.cli.demonstration.generator import Generator
from headrace.cli.demonstration.play import last_rows
from headrace.cli.running import Asked
from headrace.cli.step_tables import Rates, watermark
from headrace.clock import SECOND, SystemClock
from headrace.log import Log
from headrace.pipeline.app import App
from headrace.runtime.session import SparkSettings

TRANSACTIONS, PROFILES = "transactions", "profiles"
ALERTS, LATE = "fraud.alerts", "fraud.late"

_LAST = 12
_LOOK = 0.4


@dataclass(frozen=True)
class Results:
    """The visible alerts at one moment."""

    step: StepProgress
    watermark: int | None
    rate: float
    alerts: int
    last: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Scene:
    """The whole demo at one moment."""

    url: str
    seconds: float
    written: int
    event_time: int
    writing: bool
    results: Results | None


class Play:
    """A run of the demo. A screen may ask for the scene at any time, from another thread.

    The `first` transactions are in the log already, for Spark to start with.
    """

    def __init__(self, log: Log, app: App, generator: Generator, first: int) -> None:
        self.warm: int | None = None
        """The time when the first transactions were processed, and the rest started."""
        self._log = log
        self._app = app
        self._generator = generator
        self._first = first
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._rates = Rates(self._clock)
        self._results: Results | None = None
        self._asked = Asked()

    @property
    def seconds(self) -> float:
        return (self._clock.monotonic() - self._began) / SECOND

    def scene(self) -> Scene:
        """The current scene."""
        generator = self._generator
        return Scene(
            self._log.url,
            self.seconds,
            self._first + generator.written,
            generator.event_time,
            self.warm is not None and not generator.ended,
            self._results,
        )

    def run(self) -> None:
        """Run until every transaction is written and processed. Ctrl-C stops the generator.

        Cards wait until Spark has started, since its start is no latency of alerts.
        """
        with (
            Run(self._app, self._log.url, settings=SparkSettings(brief=True)) as running,
            self._asked.listening(),
        ):
            while not self._over() and not self._asked.signal:
                self._look(running)
            self.warm = self._clock.now()
            with self._generator as generator:
                while not (generator.ended and self._over()):
                    generator.check()
                    if self._asked.signal:
                        generator.stop()
                    self._look(running)
            running.stop()

    @property
    def law(self) -> StepProgress:
        """The progress, with the account of all transactions."""
        assert self._results is not None
        return self._results.step

    def _over(self) -> bool:
        """True if everything is processed, and a moment later published as well."""
        if self._results is None or self._results.step.lag:
            return False
        late = self._results.step.law.late
        return self._results.step.law.rows > 0 and self._log.topic(LATE).records >= late

    def _look(self, running: Run) -> None:
        running.wait(_LOOK)
        (step,) = running.progress()
        self._rates.note([step])
        self._results = Results(
            step,
            watermark(self._app, step),
            self._rates.of(step.step),
            self._log.topic(ALERTS).records,
            last_rows(self._log, ALERTS, _LAST),
        )
