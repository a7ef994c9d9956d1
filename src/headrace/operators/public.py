"""The public names for declaring pipelines."""

from headrace.operators.alerts.declare import Alerts, Rule, alerts, rule
from headrace.operators.dedup.declare import Deduplicated, deduplicate
from headrace.operators.pattern.declare import pattern
from headrace.operators.remote_lookup.declare import Remote, remote
from headrace.operators.stateful.declare import Stateful, stateful
from headrace.operators.stream_join.declare import Join, join
from headrace.operators.table_join.declare import TableJoin, join_tables
from headrace.operators.table_lookup.declare import Enriched, enrich
from headrace.operators.top.declare import Top, top
from headrace.operators.window.aggregates import (
    approx_distinct,
    approx_top,
    average,
    count,
    distinct,
    expression,
    first,
    last,
    max,
    min,
    quantile,
    sum,
)
from headrace.operators.window.declare import Aggregation, aggregate
from headrace.operators.window.grouping_sets import GroupingSets, cube, grouping_sets, rollup
from headrace.operators.window.windows import (
    FOREVER,
    Cumulative,
    Session,
    Sliding,
    Window,
    cumulative,
    hopping,
    running,
    session,
    sliding,
    tumbling,
)
from headrace.pipeline.app import App
from headrace.pipeline.disorder import Disorder, suggest_lateness
from headrace.pipeline.row_steps import derive, explode, filter, merge, rekey, select, split
from headrace.pipeline.stream import Stream
from headrace.pipeline.tables import Table, table
from headrace.pipeline.time import ArrivalTimeWarning, Lateness

__all__ = [
    "FOREVER", "Aggregation", "Alerts", "App", "ArrivalTimeWarning", "Cumulative",
    "Deduplicated", "Disorder", "Enriched", "GroupingSets", "Join", "Lateness", "Remote",
    "Rule", "Session", "Sliding", "Stateful", "Stream", "Table", "TableJoin", "Top", "Window",
    "aggregate", "alerts", "approx_distinct", "approx_top", "average", "count", "cube",
    "cumulative", "deduplicate", "derive", "distinct", "enrich", "explode", "expression",
    "filter", "first", "grouping_sets", "hopping", "join", "join_tables", "last", "max",
    "merge", "min", "pattern", "quantile", "rekey", "remote", "rollup", "rule", "running",
    "select", "session", "sliding", "split", "stateful", "suggest_lateness", "sum", "table",
    "top", "tumbling",
]  # fmt: skip
