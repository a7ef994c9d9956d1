"""The steps of a running application as tables, as lines and as JSON."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from headrace.application.run import StepProgress
from headrace.cli.output import moment, plain, table
from headrace.clock import SECOND, Clock
from headrace.plan.law import Law
from headrace.wording import count, when

_RATE_OVER = 10 * SECOND
OTHER_TERMS = ("filtered", "tombstones", "waiting", "compacted", "duplicates")
"""The terms of the law beside counted, late and dead, which are shown if there are any."""


class Rates:
    """Rows per second of each step in the last seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, deque[tuple[int, int]]] = {}

    def note(self, steps: Sequence[StepProgress]) -> None:
        """Record the current progress."""
        now = self._clock.monotonic()
        for step in steps:
            seen = self._seen.setdefault(step.step, deque())
            seen.append((now, step.law.rows))
            while now - seen[0][0] > _RATE_OVER:
                seen.popleft()

    def of(self, step: str) -> float:
        """Rows per second of a step."""
        seen = self._seen.get(step)
        if not seen or seen[-1][0] == seen[0][0]:
            return 0.0
        (start, before), (end, after) = seen[0], seen[-1]
        return (after - before) * SECOND / (end - start)


def live_table(steps: Sequence[StepProgress], rates: Rates) -> Table:
    """One line per step, for the live display."""
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
            when(step.watermark),
            plain(count(step.lag), "yellow" if step.lag else ""),
            plain(count(law.late), "yellow" if law.late else ""),
            plain(count(law.dead), "red" if law.dead else ""),
            count(law.filtered),
            *([count(law.duplicates)] if repeated else []),
        )
    return lines


def plain_line(step: StepProgress, rates: Rates) -> str:
    """The progress of a step in one line, for use without a terminal."""
    law = step.law
    return (
        f"{step.step}  {law.rows:,} rows, {rates.of(step.step):,.0f} rows/s, "
        f"watermark {when(step.watermark)}, lag {step.lag:,}, {law.late:,} late, "
        f"{law.dead:,} dead, {law.filtered:,} filtered"
        + (f", {law.duplicates:,} duplicates" if law.duplicates else "")
    )


def summary(steps: Sequence[StepProgress]) -> tuple[Table, Text]:
    """The account of all rows by step, and the law of conservation."""
    lines = table("step", "rows", "watermark", ">lag")
    for step in steps:
        lines.add_row(
            plain(step.step, "bold"),
            plain(str(step.law), "" if step.law.holds else "bold red"),
            when(step.watermark),
            count(step.lag),
        )
    total = sum((step.law for step in steps), Law())
    more = (name for name in OTHER_TERMS if getattr(total, name))
    law = "rows + added by explode" if total.exploded else "rows"
    law += f" = {' + '.join(('counted', 'late', 'dead', *more))}"
    if total.pairs != total.passed:
        law += ", where a row counts once in each window it is in"
    every = "Every" if all(step.law.holds for step in steps) else "Not every"
    return lines, plain(f"{every} row is accounted for: {law}")


def step_json(app: str, step: StepProgress) -> dict[str, Any]:
    """A step, the account of its rows, and its progress."""
    return {
        "app": app,
        "step": step.step,
        **dataclasses.asdict(step.law),
        "holds": step.law.holds,
        "frontier": moment(step.frontier),
        "watermark": moment(step.watermark),
        "lag": step.lag,
        "lags": {topic: list(lags) for topic, lags in step.lags.items()},
    }
