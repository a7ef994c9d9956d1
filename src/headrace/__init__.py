"""A durable event log, and event streams on Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.application.bounded import BatchResult, LogRange
    from headrace.application.drain import drain
    from headrace.application.preflight import Preflight, StepCheck, preflight
    from headrace.application.rebuild.rebuild import Diff, Rebuild, Rebuilt, rebuild
    from headrace.application.run import Run, run, start
    from headrace.application.show import Shown, show
    from headrace.application.verify.result import Verified
    from headrace.application.verify.verify import verify
    from headrace.application.waiting import wait_for
    from headrace.language.sql import load_sql, sql
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
        once_by,
        open_log,
    )
    from headrace.operators.public import (
        FOREVER,
        Aggregation,
        Alerts,
        App,
        ArrivalTimeWarning,
        Cumulative,
        Deduplicated,
        Disorder,
        Enriched,
        GroupingSets,
        Join,
        Lateness,
        Remote,
        Rule,
        Session,
        Sliding,
        Stateful,
        Stream,
        Table,
        TableJoin,
        Top,
        Window,
        aggregate,
        alerts,
        approx_distinct,
        approx_top,
        average,
        count,
        cube,
        cumulative,
        deduplicate,
        derive,
        distinct,
        enrich,
        explode,
        expression,
        filter,
        first,
        grouping_sets,
        hopping,
        join,
        join_tables,
        last,
        max,
        merge,
        min,
        pattern,
        quantile,
        rekey,
        remote,
        rollup,
        rule,
        running,
        select,
        session,
        sliding,
        split,
        stateful,
        suggest_lateness,
        sum,
        table,
        top,
        tumbling,
    )
    from headrace.store import (
        Changes,
        Search,
        SearchIndex,
        Store,
        StoredView,
        StorePosition,
        StoreTable,
        Views,
        open_search,
        open_views,
    )
    from headrace.store.delta import Delta
    from headrace.store.opensearch import OpenSearch
    from headrace.store.postgres import Postgres
    from headrace.store.redis import Redis

__all__ = [
    "EARLIEST", "FOREVER", "LATEST", "Aggregation", "Alerts", "App", "ArrivalTimeWarning",
    "Batch", "BatchResult", "Capability", "Changes", "Commit", "Consumer", "Cumulative",
    "Deduplicated", "Delta", "Diff", "Disorder", "Enriched", "GroupingSets", "Join", "Lateness",
    "Log", "LogRange", "Offset", "OpenSearch", "Postgres", "Preflight", "Producer", "Rebuild",
    "Rebuilt", "Receipt", "Record", "Redis", "Remote", "Rule", "Run", "Search", "SearchIndex",
    "Session", "Shown", "Sliding", "Stateful", "StepCheck", "Store", "StorePosition",
    "StoreTable", "StoredView", "Stream", "Table", "TableJoin", "Time", "Top", "Topic",
    "TopicSettings", "Transaction", "Verified", "Views", "Window", "aggregate", "alerts",
    "approx_distinct", "approx_top", "average", "count", "cube", "cumulative", "deduplicate",
    "derive", "distinct", "drain", "enrich", "explode", "expression", "filter", "first",
    "grouping_sets", "hopping", "join", "join_tables", "last", "load_sql", "max", "merge",
    "min", "once_by", "open_log", "open_search", "open_views", "pattern", "preflight",
    "quantile", "rebuild", "rekey", "remote", "rollup", "rule", "run", "running", "select",
    "session", "show", "sliding", "split", "sql", "start", "stateful", "suggest_lateness",
    "sum", "table", "top", "tumbling", "verify", "wait_for",
]  # fmt: skip

_MODULES = (
    "headrace.log",
    "headrace.operators.public",
    "headrace.language.sql",
    "headrace.store",
    "headrace.application.show",
    "headrace.application.waiting",
    "headrace.application.preflight",
    "headrace.application.bounded",
    "headrace.application.run",
    "headrace.application.drain",
    "headrace.application.rebuild.rebuild",
    "headrace.application.verify.verify",
)
"""The modules of these names, the quickest to load first."""

_WITH_EXTRAS = {
    "Delta": "headrace.store.delta",
    "OpenSearch": "headrace.store.opensearch",
    "Postgres": "headrace.store.postgres",
    "Redis": "headrace.store.redis",
}
"""Names whose modules need a package of an extra, so that no other name loads them."""


def __getattr__(name: str) -> Any:
    """Load a module when its name is first used: the log needs no Spark, and --help no Arrow."""
    if name not in __all__:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    for module in (_WITH_EXTRAS[name],) if name in _WITH_EXTRAS else _MODULES:
        found = importlib.import_module(module)
        if name in found.__all__:
            return getattr(found, name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, for tab completion. It loads none of them."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
