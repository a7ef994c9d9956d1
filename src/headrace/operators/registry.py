"""The registry of operators, by type of declaration."""

from __future__ import annotations

from typing import Any

from headrace.operators.alerts.declare import Alerts
from headrace.operators.alerts.operator import AlertOperator
from headrace.operators.contract import Operator
from headrace.operators.dedup.declare import Deduplicated
from headrace.operators.dedup.operator import DedupOperator
from headrace.operators.events.declare import Events
from headrace.operators.events.operator import EventsOperator
from headrace.operators.remote_lookup.declare import Fetched
from headrace.operators.remote_lookup.operator import RemoteLookupOperator
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stateful.operator import StatefulOperator
from headrace.operators.stateless.operator import RowOperator
from headrace.operators.stream_join.declare import Join
from headrace.operators.stream_join.operator import StreamJoinOperator
from headrace.operators.table_join.declare import TableJoin
from headrace.operators.table_join.operator import TableJoinOperator
from headrace.operators.table_lookup.declare import Enriched
from headrace.operators.table_lookup.operator import TableLookupOperator
from headrace.operators.top.declare import Top
from headrace.operators.top.operator import TopOperator
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.operator import WindowOperator
from headrace.pipeline.stream import Stream

OPERATORS: tuple[tuple[type[Stream], Operator[Any]], ...] = (
    (Top, TopOperator()),
    (Deduplicated, DedupOperator()),
    (Aggregation, WindowOperator()),
    (Join, StreamJoinOperator()),
    (Enriched, TableLookupOperator()),
    (TableJoin, TableJoinOperator()),
    (Stateful, StatefulOperator()),
    (Alerts, AlertOperator()),
    (Fetched, RemoteLookupOperator()),
    (Events, EventsOperator()),
    (Stream, RowOperator()),
)
"""The first match wins, so the most specific declaration comes first."""


def operator_of(stream: Stream) -> Operator[Any]:
    """The operator of a stream."""
    return next(operator for kind, operator in OPERATORS if isinstance(stream, kind))
