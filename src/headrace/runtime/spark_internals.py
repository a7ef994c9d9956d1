"""Spark's counts in a plan that it has run, read off the plan's own metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

_DROPPED = "numRowsDroppedByWatermark"


def execution_of(query: StreamingQuery) -> Any:
    """The execution of the batch that a query has just computed, or is about to commit."""
    return query._jsq.streamingQuery().lastExecution()


def nodes(plan: Any) -> Iterator[tuple[str, Any]]:
    """The operators of a plan from its end to its sources, each with the name of its class."""
    number = 0
    while (node := plan.apply(number)) is not None:
        yield str(node.getClass().getSimpleName()), node
        number += 1


def metric(node: Any, name: str) -> int:
    """The count of an operator under a name; 0 if it does not count that."""
    found = node.metrics().get(name)
    return int(found.get().value()) if found.isDefined() else 0


def dropped(node: Any) -> int:
    """The number of rows that an operator dropped because Spark's watermark had passed them."""
    return metric(node, _DROPPED)
