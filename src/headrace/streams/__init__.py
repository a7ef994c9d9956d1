"""What is computed: streams, windows, lateness and aggregates, declared and not run.

Everything here is a small frozen value. What it means is in `headrace.oracle`, in plain Python; how
it runs is in `headrace.engine`, on Spark. Neither is imported here.
"""

from headrace.streams.aggregates import (
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
from headrace.streams.alerts import Alerts, Rule, alerts, rule
from headrace.streams.app import App
from headrace.streams.arrival import ArrivalTimeWarning
from headrace.streams.dedup import Deduplicated, deduplicate
from headrace.streams.disorder import Disorder, suggest_lateness
from headrace.streams.joins import Join, join
from headrace.streams.patterns import pattern
from headrace.streams.remote import Remote, remote
from headrace.streams.stateful import Stateful, stateful
from headrace.streams.statements.file import load_sql
from headrace.streams.statements.inline import sql
from headrace.streams.stream import (
    Aggregation,
    Stream,
    Top,
    aggregate,
    derive,
    explode,
    filter,
    merge,
    rekey,
    select,
    split,
)
from headrace.streams.table_joins import TableJoin, join_tables
from headrace.streams.tables import Enriched, Table, enrich, table
from headrace.streams.time import (
    FOREVER,
    Lateness,
    Session,
    Sliding,
    Window,
    hopping,
    running,
    session,
    sliding,
    tumbling,
)
from headrace.streams.top import top

__all__ = [
    "FOREVER",
    "Aggregation",
    "Alerts",
    "App",
    "ArrivalTimeWarning",
    "Deduplicated",
    "Disorder",
    "Enriched",
    "Join",
    "Lateness",
    "Remote",
    "Rule",
    "Session",
    "Sliding",
    "Stateful",
    "Stream",
    "Table",
    "TableJoin",
    "Top",
    "Window",
    "aggregate",
    "alerts",
    "approx_distinct",
    "approx_top",
    "average",
    "count",
    "deduplicate",
    "derive",
    "distinct",
    "enrich",
    "explode",
    "expression",
    "filter",
    "first",
    "hopping",
    "join",
    "join_tables",
    "last",
    "load_sql",
    "max",
    "merge",
    "min",
    "pattern",
    "quantile",
    "rekey",
    "remote",
    "rule",
    "running",
    "select",
    "session",
    "sliding",
    "split",
    "sql",
    "stateful",
    "suggest_lateness",
    "sum",
    "table",
    "top",
    "tumbling",
]
