"""Run a demo: the generator and the pipeline, until both are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.application.run import Run, StepProgress
from headrace.cli.asked import Asked
from headrace.cli.demonstration.check import DEAD, LATE, VIEW
from headrace.cli.demonstration.generator import Generator
from headrace.cli.step_tables import Rates
from headrace.clock import SECOND, SystemClock
from headrace.log import LATEST, Log, Offset
from headrace.pipeline.app import App
from headrace.runtime.session import SparkSettings
from headrace.store import Views, open_views

TOP = 10
_MINUTES = 5
_LAST = 4
_LOOK = 0.4

_LATEST_MINUTES = f"""
SELECT window_start, _state, sum(hits) AS hits FROM {VIEW}
GROUP BY window_start ORDER BY window_start DESC LIMIT {_MINUTES}
"""
_TOP_NOW = f"""
SELECT url, json_group_object(window_start, hits) AS hits, sum(hits) AS total FROM {VIEW}
WHERE window_start >= ? GROUP BY url ORDER BY total DESC, url LIMIT {TOP}
"""
_TOP_EVER = f"""
SELECT url, sum(hits) AS hits FROM {VIEW} GROUP BY url ORDER BY hits DESC, url LIMIT {TOP}
"""


@dataclass(frozen=True)
class Progress:
    """The progress of the pipeline at one moment."""

    step: StepProgress
    watermark: int | None
    rate: float


R = TypeVar("R", bound=Progress)


@dataclass(frozen=True)
class Scene(Generic[R]):
    """The whole demo at one moment."""

    url: str
    seconds: float
    written: int
    event_time: int
    writing: bool
    results: R | None


class Performance(Generic[R]):
    """A run of a demo. A screen may ask for the scene at any time, from another thread."""

    def __init__(self, log: Log, app: App, generator: Generator) -> None:
        self._log = log
        self._app = app
        self._generator = generator
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._rates = Rates(self._clock)
        self._results: R | None = None
        self._asked = Asked()

    @property
    def seconds(self) -> float:
        return (self._clock.monotonic() - self._began) / SECOND

    @property
    def writing(self) -> bool:
        return not self._generator.ended

    @property
    def written(self) -> int:
        return self._generator.written

    def scene(self) -> Scene[R]:
        """The current scene."""
        event_time = self._generator.event_time
        return Scene(
            self._log.url, self.seconds, self.written, event_time, self.writing, self._results
        )

    def _progress(self, running: Run) -> tuple[StepProgress, int | None, float]:
        """The progress of the only step, its watermark, and its rows per second."""
        (step,) = running.progress()
        self._rates.note([step])
        return step, step.watermark, self._rates.of(step.step)


@dataclass(frozen=True)
class Results(Progress):
    """The visible results of the pipeline at one moment."""

    minutes: Sequence[Mapping[str, Any]] = ()
    top: Sequence[Mapping[str, Any]] = ()
    late: Sequence[Mapping[str, Any]] = ()
    dead: Sequence[Mapping[str, Any]] = ()


class Play(Performance[Results]):
    """A run of the demo of page views."""

    first_result: float | None = None
    """Seconds until the first result."""

    def run(self) -> None:
        """Run until every page view is written and counted. Ctrl-C stops the generator."""
        with (
            self._generator as generator,
            Run(self._app, self._log.url, settings=SparkSettings(brief=True)) as running,
            open_views(self._log.url, app=self._app.name) as views,
            self._asked.listening(),
        ):
            while not (generator.ended and self._over()):
                generator.check()
                if self._asked.signal:
                    generator.stop()
                running.wait(_LOOK)
                self._results = self._look(running, views)
                if self.first_result is None and self._results.minutes:
                    self.first_result = self.seconds
            running.stop()

    def top(self, views: Views) -> list[tuple[str, int]]:
        """The most viewed pages."""
        return [(row["url"], row["hits"]) for row in views.query(_TOP_EVER).dicts()]

    def _over(self) -> bool:
        """True if everything is counted, and a moment later published as well."""
        if self._results is None or self._results.step.lag:
            return False
        law = self._results.step.law
        return (
            self._log.topic(LATE).records >= law.late and self._log.topic(DEAD).records >= law.dead
        )

    def _look(self, running: Run, views: Views) -> Results:
        minutes = views.query(_LATEST_MINUTES).dicts()[::-1]
        top = views.query(_TOP_NOW, (minutes[0]["window_start"],)).dicts() if minutes else []
        return Results(
            *self._progress(running),
            minutes,
            top,
            last_rows(self._log, LATE, _LAST),
            last_rows(self._log, DEAD, _LAST),
        )


def last_rows(log: Log, topic: str, count: int) -> list[dict[str, Any]]:
    """The last rows of a topic with one partition."""
    end = log.offset_at(topic, 0, LATEST)
    start = max(log.topic(topic).partitions[0].first, end - count)
    batches = log.read(topic, start=Offset(start), stop=Offset(end), partitions=[0])
    return [record.value for batch in batches for record in batch.records()]
