"""Declaration of a sequence pattern, compiled to keyed state."""

from __future__ import annotations

from collections.abc import Sequence as Several
from datetime import timedelta
from typing import Any

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.log.settings import format_span
from headrace.operators.pattern.matching import ENDED, PLACES, STARTED, Sequence
from headrace.operators.stateful.declare import Stateful, stateful
from headrace.pipeline.arguments import declaration
from headrace.pipeline.expressions import Expression, check_columns, not_there
from headrace.pipeline.row_steps import check_new_names, project, time_column, with_keys
from headrace.pipeline.stream import Stream
from headrace.pipeline.where import Where, caller, declared_at

Step = tuple[str, str] | tuple[str, str, int]
"""A name, a condition in Spark SQL, and the number of repetitions, if more than one."""

_MOST_ROWS = 32
"""The longest sequence: the state of a key grows with it."""

_TICK = timedelta(microseconds=1)


@declaration
def pattern(
    stream: Stream,
    *,
    by: str | Several[str],
    steps: Several[Step],
    within: timedelta,
    delay: timedelta,
    strict: bool = False,
    buckets: int = 8,
) -> Stateful:
    """A row for each match: rows of a key that follow each other like `steps`, all `within` a time.

    Rows are matched in event-time order, once the highest event time is `delay` past them. Other
    rows may come in between, unless the pattern is `strict`. No row is in two matches: after a
    match, the search starts over. Of several starts, the latest counts. The columns are those of
    `by`, `started_at` and `ended_at`, and the times of each step: `NAME_first`, `NAME_last`.
    """
    where = caller()
    stream, keys = with_keys(stream, by, where)
    names, conditions, times = _read_steps(steps, stream, where)
    time = time_column(stream)
    if time is None:
        raise InvalidPipeline(
            "A pattern needs the event time of its rows, and the stream has dropped it",
            hint=f"Keep the topic's event-time column unchanged. See {where}",
        )
    for key in keys:
        if key not in stream.columns:
            raise not_there(f"There is no key column {key!r}", key, stream.columns, where)
    if within <= timedelta(0):
        raise InvalidPipeline(
            f"within must be positive: {format_span(within)}", hint=f"See {where}"
        )
    made = [*keys, STARTED, ENDED]
    made += [f"{name}_{end}" for name in names for end in ("first", "last")]
    taken = sorted({name for name in (*keys, time) if name in names})
    if taken or len(set(made)) != len(made):
        twice = taken or sorted({name for name in made if made.count(name) > 1})
        raise InvalidPipeline(
            f"The name of a step is taken: there are two columns {twice[0]!r}",
            hint=f"Rename the step. See {where}",
        )
    kept = [(name, f"`{name}`") for name in dict.fromkeys((*keys, time))]
    truths = [
        (name, f"coalesce(({condition}), false)")
        for name, condition in zip(names, conditions, strict=True)
    ]
    sequence = Sequence(keys, time, names, times, micros(within), strict)
    with declared_at(where):
        return stateful(
            project(stream, [*kept, *truths], where),
            sequence,
            by=keys,
            state=f"{PLACES} array<bigint>",
            output=", ".join(f"`{name}` timestamp" for name in made[len(keys) :]),
            delay=delay,
            # Rows that are exactly `within` apart still match.
            ttl=within + _TICK,
            buckets=buckets,
            event_time=ENDED,
            with_key=True,
        )


def _read_steps(
    steps: Several[Step], stream: Stream, where: Where
) -> tuple[tuple[str, ...], tuple[Expression, ...], tuple[int, ...]]:
    names, conditions, times = [], [], []
    given: Several[Any] = steps
    for step in given:
        if not isinstance(step, tuple | list) or not 2 <= len(step) <= 3:
            raise InvalidPipeline(
                f"Invalid step {step!r}",
                hint=f"A step is a name, a condition and a count: ('failed', 'not ok', 3). "
                f"See {where}",
            )
        name, condition, *more = step
        count = more[0] if more else 1
        if not isinstance(count, int) or count < 1:
            raise InvalidPipeline(
                f"Step {name!r} cannot occur {count!r} times", hint=f"Use 1 or more. See {where}"
            )
        check_columns(condition, stream.columns, where)
        names.append(name)
        conditions.append(condition)
        times.append(count)
    check_new_names(names, where)
    if not names or len(set(names)) != len(names):
        raise InvalidPipeline(
            "The steps of a pattern need distinct names",
            hint=f"steps=[('failed', ...)]. See {where}",
        )
    if sum(times) > _MOST_ROWS:
        raise InvalidPipeline(
            f"A pattern of {sum(times):,} rows is too long",
            hint=f"The maximum is {_MOST_ROWS}. Count in a window instead? See {where}",
        )
    return tuple(names), tuple(conditions), tuple(times)
