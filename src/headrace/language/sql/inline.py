"""`hr.sql`: a SQL query in Python."""

from __future__ import annotations

from datetime import timedelta
from typing import overload

from headrace.errors import InvalidPipeline
from headrace.language.sql.query import stream_of
from headrace.language.sql.relations import Scope
from headrace.language.sql.terms import Terms
from headrace.language.sql.tokens import Script
from headrace.operators.window.declare import Aggregation, Emit
from headrace.pipeline.stream import Stream
from headrace.pipeline.time import Lateness
from headrace.pipeline.where import caller

_ADVICE = {
    "lateness": "Add lateness=Lateness(delay=..., grace=...) to the call",
    "delay": "Add delay=timedelta(...) to the call",
    "ttl": "Add ttl=timedelta(...) to the call",
    "wait": "Add wait=timedelta(...) to the call",
}


@overload
def sql(
    query: str,
    /,
    *,
    lateness: Lateness,
    emit: Emit = "updates",
    delay: None = None,
    ttl: timedelta | None = None,
    wait: timedelta | None = None,
    **streams: Stream,
) -> Aggregation: ...
@overload
def sql(
    query: str,
    /,
    *,
    lateness: None = None,
    emit: Emit = "updates",
    delay: timedelta | None = None,
    ttl: timedelta | None = None,
    wait: timedelta | None = None,
    **streams: Stream,
) -> Stream: ...
def sql(
    query: str,
    /,
    *,
    lateness: Lateness | None = None,
    emit: Emit = "updates",
    delay: timedelta | None = None,
    ttl: timedelta | None = None,
    wait: timedelta | None = None,
    **streams: Stream,
) -> Stream:
    """Make the stream that a query describes, from streams that are passed by name.

    It is the same pipeline that `select`, `filter`, `aggregate` and the others make of the same
    expressions. A window needs `lateness`, a join of streams `delay`, ROW_NUMBER() = 1 `ttl` and
    `delay`, and FOR SYSTEM_TIME AS OF `wait`, as in Python. They are those of every step in the
    query: a step with its own is a stream of another call.
    """
    where = caller()
    script = Script(query, where, is_file=False)
    statements = script.statements
    if len(statements) != 1:
        raise InvalidPipeline(
            f"sql() takes one query, and was given {len(statements)}", hint=f"See {where}"
        )
    given = {"delay": delay, "ttl": ttl, "wait": wait}
    if lateness is not None:
        if delay is not None:
            raise InvalidPipeline(
                "lateness has a delay already", hint=f"Leave out one of them. See {where}"
            )
        given |= {"delay": lateness.delay, "grace": lateness.grace}
    spans = {name: span for name, span in given.items() if span is not None}
    terms = Terms(spans, emit, _ADVICE)
    made = stream_of(statements[0], Scope(streams, terms))
    if "grace" in terms.unused:
        raise InvalidPipeline(
            "Lateness is about windows, and the query has none",
            hint=f"Add GROUP BY with a window, or leave lateness out. See {where}",
        )
    for name in terms.unused:
        raise InvalidPipeline(
            f"The query does not use {name!r}", hint=f"Leave it out of the call. See {where}"
        )
    return made
