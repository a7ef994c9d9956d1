"""Run the fraud demo: the cards and the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.application.run import Run, StepProgress
from headrace.cli.demonstration.generator import Generator
from headrace.cli.demonstration.play import Performance, Progress, last_rows
from headrace.log import Log
from headrace.pipeline.app import App
from headrace.runtime.session import SparkSettings

TRANSACTIONS, PROFILES = "transactions", "profiles"
ALERTS, LATE = "fraud.alerts", "fraud.late"

_LAST = 12
_LOOK = 0.4


@dataclass(frozen=True)
class Results(Progress):
    """The visible alerts at one moment."""

    alerts: int
    last: Sequence[Mapping[str, Any]]


class Play(Performance[Results]):
    """A run of the fraud demo. Its `first` transactions are in the log already."""

    def __init__(self, log: Log, app: App, generator: Generator, first: int) -> None:
        super().__init__(log, app, generator)
        self.warm: int | None = None
        """The time when the first transactions were processed, and the rest started."""
        self._first = first

    @property
    def writing(self) -> bool:
        return self.warm is not None and super().writing

    @property
    def written(self) -> int:
        return self._first + super().written

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
        alerts = self._log.topic(ALERTS).records
        self._results = Results(
            *self._progress(running), alerts, last_rows(self._log, ALERTS, _LAST)
        )
