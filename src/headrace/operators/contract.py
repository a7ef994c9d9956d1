"""The contract of an operator.

An operator is a folder. `declare` holds its declaration, a `Stream`, which answers everything that
is known without running it. `operator` holds its `Operator`, which explains it and says where it
can run. Three modules are imported only when needed, so explaining loads neither Spark nor SQLite:

    meaning.shown(stream, excerpt)  its rows in plain Python, if `in_python` is set
    spark.plan(job)       the execution: a `StreamPlan` (one query) or a `RoundPlan` (own rounds)
    state.keeper(stored)  the `Keeper`, which stores a batch inside the store's transaction
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from headrace.log import Log
from headrace.log.settings import format_span
from headrace.oracle.excerpt import Excerpt
from headrace.oracle.expressions import BeyondOracle
from headrace.oracle.rows import Row
from headrace.pipeline.output import Output
from headrace.pipeline.stream import Stream
from headrace.plan.lateness import Closing

S = TypeVar("S", bound=Stream)

Fact = tuple[str, str]
"""A label and a sentence."""

IN_BATCHES = "Remove latency='real-time' to run in micro-batches"
USE_ALERTS = "hr.alerts(...) evaluates rules over recent events in real time"


class Refusal(NamedTuple):
    """The reason why a step cannot run in real time, and the alternative."""

    why: str
    instead: str


@dataclass(frozen=True)
class Panes:
    """The windows of a step, and the event time that fires and closes each.

    A pane fires `delay` after the end of its window, and can change for `grace` and `settles` more.
    """

    delay: timedelta
    grace: timedelta
    settles: timedelta
    emitted_once: bool
    """True if a pane is emitted once, when it can change no more."""
    fires: Closing
    closes: Closing


class Term(NamedTuple):
    """The name of a part of a definition, and the function that formats its value."""

    called: str
    show: Callable[[Any], str] | None = None
    one: str = ""
    """The name of a single entry, if entries are named."""


class Operator(Generic[S]):
    """An operator. The defaults are those of a stateless step."""

    package: ClassVar[str]
    """The package of its `spark` and `state` modules."""
    in_python: ClassVar[bool] = False
    """True if `meaning` has `shown`. Else only Spark can show its rows."""
    terms: ClassVar[Mapping[str, Term]] = {}
    """Names for the parts of its definition, by their keys in `Stream.definition`."""

    def facts(self, stream: S, log: Log | None) -> list[Fact]:
        """Sentences about its results, state and emission; with a log, its expected size."""
        return [("holds", "nothing: each row is handled by itself")]

    def step(self, stream: S) -> str:
        """The effect on each row, for an operator in the middle of a step."""
        return f"goes through {type(stream).__name__.lower()}"

    def published(self, output: Output) -> str:
        """The rows that an output writes."""
        return "each row once,"

    def refuses_real_time(self, stream: S) -> Refusal | None:
        """The reason why it cannot run in real time, or None."""
        return None

    def refuses_batch(self, stream: S) -> str | None:
        """The reason why it cannot be computed over all rows at once, or None."""
        return None

    def final_after(self, stream: S) -> timedelta | None:
        """Time from the end of a result until it is final; None if results have no end."""
        return None

    def panes(self, stream: S) -> Panes | None:
        """Its windows; None if it has none."""
        return None

    def shown(self, stream: S, excerpt: Excerpt) -> list[Row]:
        """Its rows over a part of the log, in plain Python, or `BeyondOracle`."""
        if not self.in_python:
            raise BeyondOracle(f"the oracle does not compute {stream.noun}")
        try:
            rows: list[Row] = self._module("meaning").shown(stream, excerpt)
        except (ArithmeticError, TypeError) as error:  # such as a list as a key
            raise BeyondOracle(f"the oracle cannot compute {stream.noun}: {error}") from None
        return rows

    def shown_late(self, stream: S, excerpt: Excerpt) -> list[Row]:
        """The late rows of the same, or `BeyondOracle`."""
        raise BeyondOracle(f"the oracle does not compute the late rows of {stream.noun}")

    def plan(self, job: Any) -> Any:
        """The Spark plan of a job."""
        return self._module("spark").plan(job)

    def keeper(self, stored: Any) -> Any:
        """The keeper of its state."""
        return self._module("state").keeper(stored)

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"{self.package}.{name}")


def span_text(micros: int) -> str:
    """A duration of a definition, which has microseconds, as text."""
    return format_span(timedelta(microseconds=micros))


def late_fact(delay: str) -> str:
    """The definition of a late row, for operators with a delay."""
    return f"a row that arrives {delay} or more behind the highest event time of its topic"


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names as an English list: "a, b and c"."""
    if not names:
        return "nothing"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
