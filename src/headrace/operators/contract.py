"""The contract of an operator: what it answers beyond its declaration.

An operator is a folder. Its declaration (`declare`) answers what can be known without running, as a
`Stream`. Its class here, in `operator`, says in words what it does and where it can run. Its halves
are found by name when they are needed, so that neither Spark nor SQLite is loaded to explain it:

    spark.plan(job)       how it runs: a `StreamPlan` (one query) or a `RoundPlan` (rounds of ours)
    state.keeper(stored)  what it does with a batch inside of the store's transaction: a `Keeper`
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from headrace.log import Log
from headrace.pipeline.output import Output
from headrace.pipeline.stream import Stream

S = TypeVar("S", bound=Stream)

Fact = tuple[str, str]
"""A word for what it is about, and a sentence."""

IN_BATCHES = "Leave latency='real-time' away, and it runs in micro-batches"
USE_ALERTS = "hr.alerts(...) looks at what is recent, in real time too"


class Refusal(NamedTuple):
    """Why a step cannot run in real time, and what to do instead."""

    why: str
    instead: str


class Term(NamedTuple):
    """A part of a definition in words: what it is called, and how its value is shown."""

    called: str
    show: Callable[[Any], str] | None = None
    one: str = ""
    """What one of its entries is called, if each has a name."""


class Operator(Generic[S]):
    """One operator. The defaults are those of a step that changes rows one by one."""

    package: ClassVar[str]
    """The folder of its halves."""
    terms: ClassVar[Mapping[str, Term]] = {}
    """Its part of a definition in words, by the names that `Stream.definition` gives them."""

    def facts(self, stream: S, log: Log | None) -> list[Fact]:
        """What it computes, holds and emits, and when; with a log, how much it will hold."""
        return [("holds", "nothing: each row by itself, as it comes")]

    def step(self, stream: S) -> str:
        """What it does to each row, if it is a step on the way to another."""
        return f"goes through {type(stream).__name__.lower()}"

    def published(self, output: Output) -> str:
        """What an output writes of it."""
        return "each row once,"

    def needs_commits(self, stream: S) -> str | None:
        """Why it cannot read Kafka itself, which has no order of commits; None if it can."""
        return None

    def refuses_real_time(self, stream: S) -> Refusal | None:
        """Why it cannot run in real time; None if it can."""
        return None

    def final_after(self, stream: S) -> timedelta | None:
        """How long after its end a result is final; None if its results have no end."""
        return None

    def plan(self, job: Any) -> Any:
        """How it runs as a Spark plan."""
        return self._half("spark").plan(job)

    def keeper(self, stored: Any) -> Any:
        """What it does with a batch in the store."""
        return self._half("state").keeper(stored)

    def _half(self, name: str) -> Any:
        return importlib.import_module(f"{self.package}.{name}")


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names as people write them one after the other."""
    if not names:
        return "nothing"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
