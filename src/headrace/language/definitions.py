"""What a stream computes, as plain data: by it, a declaration is known again."""

from __future__ import annotations

from typing import Any

from headrace.clock import micros
from headrace.operators.alerts.declare import Alerts, Rule
from headrace.operators.dedup.declare import Deduplicated
from headrace.operators.remote_lookup.declare import Fetched
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stream_join.declare import Join
from headrace.operators.table_join.declare import TableJoin
from headrace.operators.table_lookup.declare import Enriched, Table
from headrace.operators.window.aggregates import Aggregate
from headrace.pipeline.expressions import Expression
from headrace.pipeline.stream import (
    Aggregation,
    Explode,
    Filter,
    Merge,
    Project,
    Source,
    Stream,
    Top,
)
from headrace.pipeline.time import AnyWindow, Session, Sliding, Window
from headrace.plan.compile import column
from headrace.schema.ddl import format_schema


def describe(stream: Stream) -> dict[str, Any]:
    """What a stream computes, as plain data."""
    match stream:
        case Source(topic=topic):
            schema = format_schema(topic.schema) if topic.schema is not None else None
            return {"topic": topic.name, "schema": schema, "event_time": topic.event_time}
        case Filter():
            return {"filter": _text(stream.condition, stream), "of": describe(stream.input)}
        case Project():
            made = [[name, _text(made, stream)] for name, made in stream.expressions]
            return {"project": made, "of": describe(stream.input)}
        case Explode():
            array = [_text(stream.array, stream), stream.into]
            return {"explode": array, "of": describe(stream.input)}
        case Merge():
            return {"merge": [describe(part) for part in stream.inputs]}
        case Aggregation(window=window, lateness=lateness):
            return {
                "by": stream.by,
                "window": _describe_window(window),
                "lateness": [micros(lateness.delay), micros(lateness.grace)],
                "emit": stream.emit,
                "aggregates": [
                    [name, made.kind, made.of, made.parameter, *_more(made)]
                    for name, made in stream.aggregates
                ],
                "of": describe(stream.input),
            }
        case Top():
            return {"top": [stream.n, stream.by, *stream.within], **describe(stream.of)}
        case Deduplicated() | Stateful() | Alerts():
            return {**_held(stream), "of": describe(stream.input)}
        case _:
            return _joined(stream)


def _joined(stream: Stream) -> dict[str, Any]:
    """What is made of several streams."""
    match stream:
        case Join():
            return {
                "join": [stream.how, *(list(pair) for pair in stream.on)],
                "bounds": [micros(stream.before), micros(stream.after), micros(stream.delay)],
                "prefix": stream.prefix,
                "merge": [describe(stream.left), describe(stream.right)],
            }
        case Table():
            ended = None if stream.deleted is None else _text(stream.deleted, stream)
            return {"table": [ended, *stream.key], "of": describe(stream.input)}
        case Enriched():
            return {
                "enrich": [stream.mode, stream.how],
                "amend": None if stream.amend is None else micros(stream.amend),
                "on": [list(pair) for pair in stream.on],
                "wait": micros(stream.wait),
                "prefix": stream.prefix,
                "merge": [describe(stream.input), describe(stream.table)],
            }
        case Fetched(remote=remote):
            return {
                "fetch": [*stream.on, stream.how, stream.prefix, format_schema(remote.schema)],
                "of": describe(stream.input),
            }
        case TableJoin():
            return {
                "join": [stream.how],
                "on": [[list(pair) for pair in link.on] for link in stream.links],
                "prefix": [link.prefix for link in stream.links],
                "merge": [describe(table) for table in stream.tables],
            }
        case _:
            raise TypeError(f"no such stream: {stream}")


def _held(stream: Deduplicated | Stateful | Alerts) -> dict[str, Any]:
    """What is held of each key."""
    if isinstance(stream, Deduplicated):
        spans = [stream.keep, micros(stream.ttl), micros(stream.delay)]
        return {"distinct": spans, "by": stream.by}
    if isinstance(stream, Alerts):
        known = {} if stream.known is None else {"lookup": _joined(stream.known)}
        return {
            "alerts": [stream.event, micros(stream.within), stream.limit],
            "by": stream.by,
            "delay": micros(stream.delay),
            "rules": [[name, *_rule(rule, stream)] for name, rule in stream.rules],
            **known,
        }
    return {
        "function": list(stream.identity),
        "by": stream.by,
        "state": format_schema(stream.kept),
        "output": format_schema(stream.output) + " with the key" * stream.with_key,
        "delay": micros(stream.delay),
        "ttl": micros(stream.ttl),
        "order": stream.order,
        "buckets": f"{stream.buckets}, spread evenly",  # by `labels`, which the state has
    }


def _rule(rule: Rule, stream: Alerts) -> list[str | None]:
    parts = (rule.condition, rule.evidence, rule.value)
    return [None if part is None else _text(part, stream) for part in parts]


def _more(made: Aggregate) -> list[int]:
    return [] if made.tracked is None else [made.tracked]


def _describe_window(window: AnyWindow) -> list[Any]:
    match window:
        case Window():
            return [micros(window.size), micros(window.every), micros(window.offset)]
        case Sliding():
            return ["sliding", micros(window.size)]
        case Session():
            return ["session", micros(window.gap)]


def _text(expression: Expression, stream: Stream) -> str:
    return expression if isinstance(expression, str) else str(column(expression, stream.where))
