"""A durable event log, and event streams on Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.ending import (
        drain,
    )
    from headrace.log import (
        EARLIEST,
        LATEST,
        Batch,
        Capability,
        Commit,
        Consumer,
        Log,
        Offset,
        Producer,
        Receipt,
        Record,
        Time,
        Topic,
        TopicSettings,
        Transaction,
        open_log,
    )
    from headrace.runner import (
        Run,
        run,
        start,
    )
    from headrace.streams import (
        FOREVER,
        Aggregation,
        App,
        Disorder,
        Lateness,
        Session,
        Sliding,
        Stream,
        Top,
        Window,
        aggregate,
        approx_distinct,
        approx_top,
        average,
        count,
        derive,
        distinct,
        explode,
        expression,
        filter,
        first,
        hopping,
        last,
        load_sql,
        max,
        merge,
        min,
        quantile,
        rekey,
        running,
        select,
        session,
        sliding,
        split,
        sql,
        suggest_lateness,
        sum,
        top,
        tumbling,
    )
    from headrace.views import (
        Views,
        open_views,
    )

__all__ = [
    "EARLIEST",
    "FOREVER",
    "LATEST",
    "Aggregation",
    "App",
    "Batch",
    "Capability",
    "Commit",
    "Consumer",
    "Disorder",
    "Lateness",
    "Log",
    "Offset",
    "Producer",
    "Receipt",
    "Record",
    "Run",
    "Session",
    "Sliding",
    "Stream",
    "Time",
    "Top",
    "Topic",
    "TopicSettings",
    "Transaction",
    "Views",
    "Window",
    "aggregate",
    "approx_distinct",
    "approx_top",
    "average",
    "count",
    "derive",
    "distinct",
    "drain",
    "explode",
    "expression",
    "filter",
    "first",
    "hopping",
    "last",
    "load_sql",
    "max",
    "merge",
    "min",
    "open_log",
    "open_views",
    "quantile",
    "rekey",
    "run",
    "running",
    "select",
    "session",
    "sliding",
    "split",
    "sql",
    "start",
    "suggest_lateness",
    "sum",
    "top",
    "tumbling",
]


def __getattr__(name: str) -> Any:
    """Load what is used when it is used: the log needs no Spark, and --help not even Arrow."""
    if name not in __all__:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    for module in ("log", "streams", "views", "runner", "ending"):
        found = importlib.import_module(f"headrace.{module}")
        if name in found.__all__:
            return getattr(found, name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
