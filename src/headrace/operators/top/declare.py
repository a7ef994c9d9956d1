"""The highest of each window: a leaderboard of what an aggregation has counted."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import InvalidPipeline
from headrace.pipeline.expressions import not_there
from headrace.pipeline.stream import RANK, WINDOW_END, WINDOW_START, Aggregation, Top
from headrace.pipeline.time import Sliding
from headrace.pipeline.where import Where, caller


def top(aggregation: Aggregation, n: int, *, by: str, within: str | Sequence[str] = ()) -> Top:
    """For each window the `n` rows with the highest value of the aggregate `by`, with their `rank`.

    `within` names keys of the aggregation, for each value of which there is a ranking of its own.
    Rows with the same value are ranked by their key. Of sessions and running totals, those that
    are not final are ranked together, whenever each of them began.
    """
    where = caller()
    if not isinstance(aggregation, Aggregation):
        raise InvalidPipeline(
            "Only what is aggregated can be ranked",
            hint=f"Give top() what aggregate() returns. See {where}",
        )
    if type(n) is not int or n < 1:
        raise InvalidPipeline(f"There is no top {n!r}", hint=f"Use a whole number. See {where}")
    names = tuple(name for name, _ in aggregation.aggregates)
    _check_known(by, names, "no aggregate", where)
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
        raise not_there(f"{name!r} is {what} of what is to be ranked", name, names, where)


def _check_window(aggregation: Aggregation, where: Where) -> None:
    if isinstance(aggregation.window, Sliding):
        raise InvalidPipeline(
            "Sliding windows cannot be ranked: each belongs to one event, so that there is nothing "
            "to compare it with",
            hint=f"Use hopping(size, every=...): the last while, every so often. See {where}",
        )
    if Top((), where, aggregation, 1, "", ()).live and aggregation.emit == "final":
        raise InvalidPipeline(
            "Sessions are ranked while they are not final, so a ranking of them is never final",
            hint=f"Let emit be 'updates'. See {where}",
        )
