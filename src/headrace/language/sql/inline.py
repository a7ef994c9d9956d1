"""`hr.sql`: a SQL query in Python."""

from __future__ import annotations

from typing import overload

from headrace.errors import InvalidPipeline
from headrace.language.sql.grouping import Terms
from headrace.language.sql.query import Scope, stream_of
from headrace.language.sql.tokens import Script
from headrace.operators.window.declare import Aggregation, Emit
from headrace.pipeline.stream import Stream
from headrace.pipeline.time import Lateness
from headrace.pipeline.where import caller

_ADVICE = "Add lateness=Lateness(delay=..., grace=...) to the call"


@overload
def sql(
    query: str, /, *, lateness: Lateness, emit: Emit = "updates", **streams: Stream
) -> Aggregation: ...
@overload
def sql(
    query: str, /, *, lateness: None = None, emit: Emit = "updates", **streams: Stream
) -> Stream: ...
def sql(
    query: str,
    /,
    *,
    lateness: Lateness | None = None,
    emit: Emit = "updates",
    **streams: Stream,
) -> Stream:
    """Make the stream that a query describes, from streams that are passed by name.

    It is the same pipeline that `select`, `filter`, `aggregate` and the others make of the same
    expressions. A query with GROUP BY needs a window there, and `lateness` here.
    """
    where = caller()
    script = Script(query, where, is_file=False)
    statements = script.statements
    if len(statements) != 1:
        raise InvalidPipeline(
            f"sql() takes one query, and was given {len(statements)}", hint=f"See {where}"
        )
    made = stream_of(statements[0], Scope(streams, Terms(lateness, emit, _ADVICE)))
    if isinstance(made, Aggregation) or lateness is None:
        return made
    raise InvalidPipeline(
        "Lateness is about windows, and the query has none",
        hint=f"Add GROUP BY with a window, or leave lateness out. See {where}",
    )
