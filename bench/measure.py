"""Timing of two sides in turn, and the form of results."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """One measurement. `ratio` compares ours with the baseline; above 1, ours is better."""

    name: str
    value: float
    unit: str
    baseline: str
    baseline_value: float
    ratio: float


def rate(name: str, unit: str, amount: float, ours: float, baseline: str, theirs: float) -> Result:
    """A throughput result, from two times in seconds."""
    return Result(name, amount / ours, unit, baseline, amount / theirs, theirs / ours)


def cost(name: str, unit: str, ours: float, baseline: str, theirs: float) -> Result:
    """A result where less is better."""
    return Result(name, ours, unit, baseline, theirs, theirs / ours)


def report(bench: str, settings: Mapping[str, Any], results: list[Result]) -> dict[str, Any]:
    """The return value of a benchmark."""
    rounded = [
        {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(result).items()}
        for result in results
    ]
    return {"bench": bench, "settings": dict(settings), "results": rounded}


def best_of(rounds: int, *things: Callable[[], float]) -> list[float]:
    """The best time of each function over some rounds in turn. Each returns its own seconds."""
    best = [float("inf")] * len(things)
    for _ in range(rounds):
        for index, thing in enumerate(things):
            gc.collect()
            best[index] = min(best[index], thing())
    return best


def seconds(thing: Callable[[], object]) -> float:
    """The duration of a call."""
    start = time.perf_counter()
    thing()
    return time.perf_counter() - start
