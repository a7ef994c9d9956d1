"""What joins, lookups and state of a user's own do, in words."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.log.settings import format_span
from headrace.operators.stateful.declare import TIMER, Stateful
from headrace.operators.stream_join.declare import Join
from headrace.operators.table_lookup.declare import Enriched
from headrace.pipeline.stream import sources

Fact = tuple[str, str]


def listed(names: Sequence[str]) -> str:
    """Names as people write them one after the other."""
    if not names:
        return "nothing"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def join_facts(join: Join) -> list[Fact]:
    """What two streams are joined by, what is held of each, and what is told."""
    equal = ", ".join(mine if mine == theirs else f"{mine} = {theirs}" for mine, theirs in join.on)
    left, right = (listed([s.topic.name for s in sources(part)]) for part in join.upstream)
    before, after, delay = map(format_span, (join.before, join.after, join.delay))
    held = [
        ("holds", f"each row of {name}, until {other} is {format_span(wait + join.delay)} after it")
        for name, other, wait in ((left, right, join.after), (right, left, join.before))
    ]
    alone = {
        "inner": "pairs only",
        "left": f"pairs, and rows of {left} that have no other, once none can come",
        "right": f"pairs, and rows of {right} that have no other, once none can come",
        "full": "pairs, and rows that have no other, once none can come",
        "anti": f"rows of {left} that have no other, once none can come",
    }
    return [
        ("joins", f"{left} with {right} where {equal} is the same"),
        ("within", f"{before} before to {after} after the row of {left}"),
        *held,
        ("limit", f"{join.limit:,} rows of one key on a side, in that time; then it stops"),
        ("late", f"is a row that comes when the highest event time of its topic is {delay} ahead"),
        ("emits", alone[join.how]),
    ]


def enriched_facts(stream: Enriched) -> list[Fact]:
    """What is looked up, how long rows wait for it, and what is amended."""
    mine = listed([source.topic.name for source in sources(stream.input)])
    wait = format_span(stream.wait)
    table, keys = stream.table.topic, listed(stream.table.key)
    facts = [("looks up", f"{listed([m for m, _ in stream.on])} in {table}, a table by {keys}")]
    if stream.mode == "latest":
        return [*facts, ("version", "the newest, which a replay need not find")]
    facts += [
        ("version", "the one that was valid at the time of the row"),
        (
            "waits",
            f"in the log, until {table} has come as far, or {mine} is {wait} ahead",
        ),
        ("holds", f"every version of each {keys}"),
    ]
    if stream.amend is None:
        return [*facts, ("amends", "nothing: a change that comes later is left alone")]
    late = format_span(stream.amend)
    return [
        *facts,
        ("holds", f"each row, until {table} is {late} after it"),
        ("amends", f"what was told, when a change comes up to {late} late"),
    ]


def stateful_facts(step: Stateful) -> list[Fact]:
    """What is called with what, what is held, and what becomes of failures."""
    name, which = step.identity
    delay, ttl, keys = format_span(step.delay), format_span(step.ttl), listed(step.by)
    waits = f"each row until the highest event time is {delay} past it, and "
    turn = "the order of event time" if step.order == "time" else "the order of the log"
    failing = "the pipeline stops" if step.on_error == "stop" else "its rows are dead letters"
    timer = [("timer", "a key comes again when the watermark has passed its timer")]
    return [
        ("calls", f"{name} ({which}) with the rows of many {keys} at once, in {turn}"),
        (
            "holds",
            f"{waits * (step.order == 'time')}{', '.join(step.kept.names)} of each {keys}, until "
            f"the watermark is {ttl} past its newest row, in {step.buckets} buckets",
        ),
        *timer * (TIMER in step.kept.names),
        ("late", f"is a row that comes when the highest event time of its topic is {delay} ahead"),
        ("fails", f"for a key of which the function raises: {failing}"),
    ]
