"""Declaration of the top N of each window, a leaderboard over an aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.operators.window.declare import Aggregation, Emit
from headrace.operators.window.windows import Session, Sliding
from headrace.pipeline.arguments import declaration
from headrace.pipeline.expressions import not_there
from headrace.pipeline.output import Output, check_panes
from headrace.pipeline.stream import Stream, Text
from headrace.pipeline.time import WINDOW_END, WINDOW_START, Lateness
from headrace.pipeline.where import Where, caller

RANK = "rank"


@dataclass(frozen=True)
class Top(Stream):
    """The `n` rows with the highest `by`, for each window and each value of `within`.

    Sessions do not share windows, so all open sessions are ranked together: the board is live.
    """

    of: Aggregation
    n: int
    by: str
    within: tuple[str, ...]
    noun = "a ranking"
    is_result = True
    has_panes = True
    view_key_is = "rank"

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.of,)

    @property
    def computed(self) -> Aggregation:
        return self.of

    @property
    def settled(self) -> Top:
        return replace(self, of=self.of.settled)

    @property
    def holds_back(self) -> timedelta:
        return self.of.holds_back

    @property
    def unreadable(self) -> tuple[str, str] | None:
        if not self.live:
            return None
        return (
            "only open sessions are ranked, so a rank is never final, and each change would count "
            "again",
            "Rank windows, or read the aggregation",
        )

    @property
    def time(self) -> str:
        return self.of.time

    @property
    def view_key(self) -> tuple[str, ...]:
        return self.key

    @property
    def watermark_delay(self) -> timedelta:
        return self.lateness.delay

    @property
    def live(self) -> bool:
        """True if all open results are ranked together, instead of window by window."""
        return isinstance(self.of.window, Session)

    @property
    def group(self) -> tuple[str, ...]:
        """The columns that identify a ranking."""
        return self.within if self.live else (*self.within, *self.of.window.key)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a rank."""
        return (*self.group, RANK)

    @property
    def emit(self) -> Emit:
        return self.of.emit

    @property
    def lateness(self) -> Lateness:
        return self.of.lateness

    def output_time(self, columns: Sequence[str]) -> str:
        return WINDOW_START

    def definition(self, text: Text) -> dict[str, Any]:
        return {"top": [self.n, self.by, *self.within], **self.of.definition(text)}

    def check_output(self, output: Output) -> None:
        check_panes(output, self.columns, self.emit)
        if isinstance(output.early, int):
            raise InvalidPipeline(
                f"A rank cannot be published every {output.early} rows: its row may change first",
                hint=f"Use 'batch', 'never' or a timedelta. See {output.where}",
            )


@declaration
def top(aggregation: Aggregation, n: int, *, by: str, within: str | Sequence[str] = ()) -> Top:
    """The `n` rows of each window with the highest value of the aggregate `by`, with their `rank`.

    `within` names keys of the aggregation. Each of their values has a ranking of its own.
    Rows with the same value are ranked by their key. All open sessions and running totals are
    ranked together, whenever they began.
    """
    where = caller()
    if n < 1:
        raise InvalidPipeline(f"n cannot be {n!r}", hint=f"Use 1 or more. See {where}")
    names = tuple(name for name, _ in aggregation.aggregates)
    _check_known(by, names, "not an aggregate", where)
    chosen = (within,) if isinstance(within, str) else tuple(within)
    for name in chosen:
        _check_known(name, aggregation.by, "not among the keys", where)
    if RANK in aggregation.columns or len(set(chosen)) != len(chosen):
        raise InvalidPipeline(
            f"Two columns have the same name: {', '.join((*chosen, *aggregation.columns, RANK))}",
            hint=f"See {where}",
        )
    _check_window(aggregation, where)
    rest = tuple(name for name in aggregation.by if name not in chosen)
    columns = (*chosen, WINDOW_START, WINDOW_END, RANK, *rest, *names)
    return Top(columns, where, aggregation, n, by, chosen)


def _check_known(name: str, names: Sequence[str], what: str, where: Where) -> None:
    if name not in names:
        raise not_there(f"{name!r} is {what} of the ranked aggregation", name, names, where)


def _check_window(aggregation: Aggregation, where: Where) -> None:
    if isinstance(aggregation.window, Sliding):
        raise InvalidPipeline(
            "Sliding windows cannot be ranked: each belongs to one event, so there is nothing to "
            "compare it with",
            hint=f"Use hopping(size, every=...). See {where}",
        )
    if Top((), where, aggregation, 1, "", ()).live and aggregation.emit == "final":
        raise InvalidPipeline(
            "Only open sessions are ranked, so a ranking of sessions is never final",
            hint=f"Use emit='updates'. See {where}",
        )
