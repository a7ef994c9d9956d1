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
    from headrace.rebuilding import (
        Diff,
        Rebuild,
        Rebuilt,
        rebuild,
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
        ArrivalTimeWarning,
        Disorder,
        Join,
        Lateness,
        Session,
        Sliding,
        Stateful,
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
        join,
        last,
        load_sql,
        max,
        merge,
        min,
        pattern,
        quantile,
        rekey,
        running,
        select,
        session,
        sliding,
        split,
        sql,
        stateful,
        suggest_lateness,
        sum,
        top,
        tumbling,
    )
    from headrace.views import (
        Views,
        open_views,
    )
    from headrace.views.preflight import (
        Preflight,
        StepCheck,
        preflight,
    )

__all__ = [
    "EARLIEST",
    "FOREVER",
    "LATEST",
    "Aggregation",
    "App",
    "ArrivalTimeWarning",
    "Batch",
    "Capability",
    "Commit",
    "Consumer",
    "Diff",
    "Disorder",
    "Join",
    "Lateness",
    "Log",
    "Offset",
    "Preflight",
    "Producer",
    "Rebuild",
    "Rebuilt",
    "Receipt",
    "Record",
    "Run",
    "Session",
    "Sliding",
    "Stateful",
    "StepCheck",
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
    "join",
    "last",
    "load_sql",
    "max",
    "merge",
    "min",
    "open_log",
    "open_views",
    "pattern",
    "preflight",
    "quantile",
    "rebuild",
    "rekey",
    "run",
    "running",
    "select",
    "session",
    "sliding",
    "split",
    "sql",
    "start",
    "stateful",
    "suggest_lateness",
    "sum",
    "top",
    "tumbling",
]

_MODULES = (
    "headrace.log",
    "headrace.streams",
    "headrace.views",
    "headrace.views.preflight",
    "headrace.runner",
    "headrace.ending",
    "headrace.rebuilding",
)
"""Where they are: first what is quick to load."""


def __getattr__(name: str) -> Any:
    """Load what is used when it is used: the log needs no Spark, and --help not even Arrow."""
    if name not in __all__:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    for module in _MODULES:
        found = importlib.import_module(module)
        if name in found.__all__:
            return getattr(found, name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
