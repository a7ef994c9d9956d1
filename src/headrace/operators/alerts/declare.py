"""Declaration of alerts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, cast

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.log.settings import format_span
from headrace.operators.table_lookup.declare import Enriched
from headrace.pipeline.arguments import declaration
from headrace.pipeline.chains import check_readable, read_directly
from headrace.pipeline.expressions import Expression, check_columns, names_column
from headrace.pipeline.stream import OF_LATE, KeyedState, Stream, Text
from headrace.pipeline.where import Where, caller

RECENT = "recent"
"""The array that rules see: the events of a key up to the evaluated one, which is the last."""

ALERT, RULE, AT, VALUE = "alert", "rule", "at", "value"
EVIDENCE, SINCE, CUT, APPENDED = "evidence", "since", "cut", "appended"

_AFTER_EVENT = (AT, VALUE, EVIDENCE, SINCE, CUT, APPENDED)


@dataclass(frozen=True)
class Rule:
    """The condition that flags an event, the events that prove it, and a value to report."""

    condition: Expression
    evidence: Expression
    value: Expression | None
    noun: ClassVar[str] = "a rule"
    example: ClassVar[str] = "hr.rule('size(recent) > 5')"

    @property
    def parts(self) -> tuple[Expression | None, ...]:
        return self.condition, self.evidence, self.value


@dataclass(frozen=True)
class Alerts(KeyedState):
    """Alerts, one for each event and rule that flags it. `late` has the late events.

    A rule sees an event and the events of its key up to `within` before it. `known` is a lookup of
    the event in a table.
    """

    known: Enriched | None
    event: str
    within: timedelta
    limit: int
    rules: tuple[tuple[str, Rule], ...]
    noun = "alerts"

    @property
    def looked_up(self) -> tuple[Stream, ...]:
        # The rows of a table are not counted as events.
        return () if self.known is None else (self.known.table,)

    @property
    def time(self) -> str:
        return AT

    def output_time(self, columns: Sequence[str]) -> str:
        return AT

    def rewired(self, change: Callable[[Stream], Stream]) -> Alerts:
        made = cast(Alerts, super().rewired(change))
        known = made.known
        return made if known is None else replace(made, known=replace(known, input=made.input))

    def uses(self, column: str) -> list[str]:
        by = ["alerts are keyed by it"] * (column in self.by)
        made = [
            f"rule {name!r} reads it"
            for name, rule in self.rules
            if names_column(rule.condition, column, self.where)
        ]
        return [*self.input.uses(column), *by, *made]

    def definition(self, text: Text) -> dict[str, Any]:
        known = {} if self.known is None else {"lookup": self.known.definition(text)}
        rules = [
            [name, *(None if part is None else text(part) for part in rule.parts)]
            for name, rule in self.rules
        ]
        return {
            "alerts": [self.event, micros(self.within), self.limit],
            "by": self.by,
            "delay": micros(self.delay),
            "rules": rules,
            **known,
            "of": self.input.definition(text),
        }


@declaration
def rule(
    condition: Expression, *, evidence: Expression = RECENT, value: Expression | None = None
) -> Rule:
    """A rule that flags an event if the condition, in Spark SQL, is true.

    A rule sees the columns of the event and `recent`, an array of the events of its key up to the
    event itself, which is the last. `evidence` selects the events that an alert names, and `value`
    is a number to report. A callable that returns a Column may call a Python function.
    """
    return Rule(condition, evidence, value)


@declaration
def alerts(
    stream: Stream,
    *,
    by: str | Sequence[str],
    event: str,
    within: timedelta,
    delay: timedelta,
    rules: Mapping[str, Rule | Expression],
    limit: int = 1_000,
) -> Alerts:
    """One alert for each event and rule that flags it, emitted when the event arrives.

    Rules see `recent`: the events of the same `by` that happened at most `within` before the event,
    in event-time and then log order, with the event as the last. If one of them arrives after the
    event, the event is evaluated again. An alert is emitted once. Its id, `alert`, is made of the
    event's id, in the column `event`, and the rule.

    If a key has more than `limit` events in that time, rules see the newest, and the alert is
    `cut`. A row that arrives `delay` or more behind the highest event time of its topic is in
    `late`. The stream may be enriched from a table with `mode="latest"`: rules then see the table
    columns known at the time of the evaluation.
    """
    where = caller()
    keys = (by,) if isinstance(by, str) else tuple(by)
    # Any other enrichment is a step of its own, before this one.
    known = _known(stream)
    given = stream if known is None else known.input
    check_readable(given, where)
    first, *others = read_directly(given)
    if any(other != first for other in others):
        raise InvalidPipeline(
            "Rules need the events of a single topic, which are in one order",
            hint=f"Publish the merged stream to a topic and read that. See {where}",
        )
    for name in (*keys, event):
        check_columns(f"`{name}`", given.columns, where)
    # Column names are case-insensitive in Spark, but not in the store.
    exact = {name.lower(): name for name in given.columns}
    keys, event = tuple(exact[name.lower()] for name in keys), exact[event.lower()]
    if not keys or event in keys or len(set(keys)) != len(keys):
        raise InvalidPipeline(
            "Alerts need a key, and another column with the id of each event",
            hint=f"by='card', event='transaction'. See {where}",
        )
    if within <= timedelta(0) or delay < timedelta(0):
        raise InvalidPipeline(
            f"within must be positive and delay not negative: {format_span(within)}, "
            f"{format_span(delay)}",
            hint=f"See {where}",
        )
    if limit < 1:
        raise InvalidPipeline(f"limit must be at least 1: {limit}", hint=f"See {where}")
    _check_names(stream, (*keys, event), where)
    made = {name: r if isinstance(r, Rule) else rule(r) for name, r in rules.items()}
    _check_rules(made, (*stream.columns, RECENT), where)
    columns = (ALERT, RULE, *keys, event, *_AFTER_EVENT)
    return Alerts(
        columns, where, given, keys, delay, known, event, within, limit, tuple(made.items())
    )


def _known(stream: Stream) -> Enriched | None:
    """The lookup in front of alerts that is applied to evaluated events, if there is one."""
    latest = isinstance(stream, Enriched) and stream.mode == "latest" and stream.how == "left"
    return stream if latest and isinstance(stream, Enriched) else None


def _check_names(stream: Stream, own: Sequence[str], where: Where) -> None:
    """Raise if a column has a name that alerts reserve."""
    taken = [name for name in own if name.lower() in (ALERT, RULE, *_AFTER_EVENT)]
    taken += [name for name in stream.columns if name.lower() in (RECENT, *OF_LATE)]
    if taken:
        raise InvalidPipeline(
            f"The column name {taken[0]!r} is reserved for alerts",
            hint=f"Rename the column with select(). See {where}",
        )


def _check_rules(rules: Mapping[str, Rule], columns: Sequence[str], where: Where) -> None:
    if not rules:
        raise InvalidPipeline(
            "Alerts need a rule", hint=f"rules={{'too many': 'size(recent) > 5'}}. See {where}"
        )
    for made in rules.values():
        for part in made.parts:
            if part is not None:
                check_columns(part, columns, where)
