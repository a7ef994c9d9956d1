"""The steps of a running application as tables, as lines and as JSON."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from headrace.application.run import StepProgress
from headrace.cli.output import count, moment, plain, table, when
from headrace.clock import SECOND, Clock, micros
from headrace.pipeline.app import App

_RATE_OVER = 10 * SECOND


class Rates:
    """How many rows each step has taken in a second, of late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, deque[tuple[int, int]]] = {}

    def note(self, steps: Sequence[StepProgress]) -> None:
        """Take note of how far the steps are now."""
        now = self._clock.monotonic()
        for step in steps:
            seen = self._seen.setdefault(step.step, deque())
            seen.append((now, step.law.rows))
            while now - seen[0][0] > _RATE_OVER:
                seen.popleft()

    def of(self, step: str) -> float:
        """Rows in a second."""
        seen = self._seen.get(step)
        if not seen or seen[-1][0] == seen[0][0]:
            return 0.0
        (start, before), (end, after) = seen[0], seen[-1]
        return (after - before) * SECOND / (end - start)


def watermark(app: App, step: StepProgress) -> int | None:
    """Up to where a step believes to have seen everything, in event time."""
    if step.frontier is None:
        return None
    view = app.views.get(step.step)
    made = app.outputs[step.step].stream if view is None else view.stream
    return step.frontier - micros(made.watermark_delay)


def live_table(app: App, steps: Sequence[StepProgress], rates: Rates) -> Table:
    """A line for each step, to be drawn again and again."""
    repeated = any(step.law.duplicates for step in steps)
    lines = table(
        "step", ">rows/s", ">rows", "watermark", ">lag", ">late", ">dead", ">filtered",
        *([">duplicates"] if repeated else []),
    )  # fmt: skip
    for step in steps:
        law = step.law
        lines.add_row(
            plain(step.step, "bold"),
            f"{rates.of(step.step):,.0f}",
            count(law.rows),
            when(watermark(app, step)),
            plain(count(step.lag), "yellow" if step.lag else ""),
            plain(count(law.late), "yellow" if law.late else ""),
            plain(count(law.dead), "red" if law.dead else ""),
            count(law.filtered),
            *([count(law.duplicates)] if repeated else []),
        )
    return lines


def plain_line(app: App, step: StepProgress, rates: Rates) -> str:
    """How a step is doing, where there is no terminal to draw on."""
    law = step.law
    return (
        f"{step.step}  {law.rows:,} rows, {rates.of(step.step):,.0f} rows/s, "
        f"watermark {when(watermark(app, step))}, lag {step.lag:,}, {law.late:,} late, "
        f"{law.dead:,} dead, {law.filtered:,} filtered"
        + (f", {law.duplicates:,} duplicates" if law.duplicates else "")
    )


def summary(app: App, steps: Sequence[StepProgress]) -> Table:
    """What became of every row, step by step."""
    lines = table("step", "what became of its rows", "watermark", ">lag")
    for step in steps:
        lines.add_row(
            plain(step.step, "bold"),
            plain(str(step.law), "" if step.law.holds else "bold red"),
            when(watermark(app, step)),
            count(step.lag),
        )
    return lines


def step_json(app: App, step: StepProgress) -> dict[str, Any]:
    """A step, what became of its rows, and how far it is."""
    return {
        "app": app.name,
        "step": step.step,
        **dataclasses.asdict(step.law),
        "holds": step.law.holds,
        "frontier": moment(step.frontier),
        "watermark": moment(watermark(app, step)),
        "lag": step.lag,
        "lags": {topic: list(lags) for topic, lags in step.lags.items()},
    }
