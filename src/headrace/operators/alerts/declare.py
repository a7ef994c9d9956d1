"""Alerts: events that a rule flags, by what the same key has done shortly before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.operators.table_lookup.declare import Enriched
from headrace.pipeline.expressions import Expression, check_columns, names_column
from headrace.pipeline.stream import Late, Stream, Text, has_results, sources
from headrace.pipeline.where import Where, caller

RECENT = "recent"
"""What a rule calls the events of a key up to the one it looks at, which is the last of them."""

ALERT, RULE, AT, VALUE = "alert", "rule", "at", "value"
EVIDENCE, SINCE, CUT, APPENDED = "evidence", "since", "cut", "appended"

_AFTER_EVENT = (AT, VALUE, EVIDENCE, SINCE, CUT, APPENDED)
_OF_LATE = ("watermark", "late_by")


@dataclass(frozen=True)
class Rule:
    """When an event is flagged, by which events that is so, and what it was measured by."""

    condition: Expression
    evidence: Expression
    value: Expression | None

    @property
    def parts(self) -> tuple[Expression | None, ...]:
        return self.condition, self.evidence, self.value


@dataclass(frozen=True)
class Alerts(Stream):
    """Events that rules flag, each once for each rule. `late` are those that came too late.

    A rule looks at the events of the key in the time of `within` before an event, and at the event
    itself. `known` has what a table says of it.
    """

    input: Stream
    known: Enriched | None
    by: tuple[str, ...]
    event: str
    within: timedelta
    delay: timedelta
    limit: int
    rules: tuple[tuple[str, Rule], ...]
    is_result = True

    @property
    def upstream(self) -> tuple[Stream, ...]:
        # What a table says is looked up, and not counted: it is no stream of events.
        return (self.input,)

    @property
    def looked_up(self) -> tuple[Stream, ...]:
        return () if self.known is None else (self.known.table,)

    @property
    def watermark_delay(self) -> timedelta:
        return self.delay

    @property
    def in_order(self) -> bool:
        return True

    @property
    def has_spark_state(self) -> bool:
        return True

    @property
    def keyed_by(self) -> tuple[str, ...]:
        return self.by

    def output_time(self, columns: Sequence[str]) -> str:
        return AT

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

    @property
    def late(self) -> Late:
        """The events that came too late to be looked at, and how late they were."""
        return Late((*self.input.columns, *_OF_LATE), self.where, self)


def rule(
    condition: Expression, *, evidence: Expression = RECENT, value: Expression | None = None
) -> Rule:
    """An event is flagged if the condition is true of it, in Spark SQL.

    Beside the columns of the event there is `recent`, an array of the events of its key up to the
    event itself, which is the last. `evidence` are those of them that an alert names, and `value`
    is a number to tell with it. A callable that makes a Column may call a function in Python.
    """
    return Rule(condition, evidence, value)


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
    """One alert for each event and rule that flags it, told when the event comes.

    `recent`, which rules look at, has the events of the same `by` that happened no more than
    `within` before the event, by time and then by the log, with the event as the last. If one of
    them comes after it, the event is looked at again. An alert is told once: its id, `alert`, is
    the id of the event, in the column `event`, and the rule.

    Of a key with more events than `limit` within that time, rules see the newest, and the alert is
    `cut`. A row may be at most `delay` behind the highest event time in its topic; after
    that it is in `late`. A stream may be enriched from a table with `mode="latest"` first: rules
    then see of an event what is known of it when it is looked at.
    """
    where = caller()
    keys = (by,) if isinstance(by, str) else tuple(by)
    known = _known(stream, where)
    given = stream if known is None else known.input
    if has_results(given):
        raise InvalidPipeline(
            "Results have no event time of their own that rules could look back from",
            hint=f"Publish them to a topic and look at that. See {where}",
        )
    if len(sources(given)) > 1:
        raise InvalidPipeline(
            "Rules look at the events of one topic, which are in one order",
            hint=f"Publish what is merged to a topic and look at that. See {where}",
        )
    for name in (*keys, event):
        check_columns(f"`{name}`", given.columns, where)
    # Spark does not mind the case of a name, but whoever keeps alerts has to find the column.
    exact = {name.lower(): name for name in given.columns}
    keys, event = tuple(exact[name.lower()] for name in keys), exact[event.lower()]
    if not keys or event in keys or len(set(keys)) != len(keys):
        raise InvalidPipeline(
            "Alerts go by a key, and each event of it has an id",
            hint=f"by='card', event='transaction'. See {where}",
        )
    if within <= timedelta(0) or delay < timedelta(0):
        raise InvalidPipeline(
            f"within has to be longer than nothing, and delay not negative: {within}, {delay}",
            hint=f"See {where}",
        )
    if limit < 1:
        raise InvalidPipeline(f"limit has to be at least 1: {limit}", hint=f"See {where}")
    _check_names(stream, (*keys, event), where)
    made = {name: r if isinstance(r, Rule) else rule(r) for name, r in rules.items()}
    _check_rules(made, (*stream.columns, RECENT), where)
    columns = (ALERT, RULE, *keys, event, *_AFTER_EVENT)
    return Alerts(
        columns, where, given, known, keys, event, within, delay, limit, tuple(made.items())
    )


def _known(stream: Stream, where: Where) -> Enriched | None:
    """The lookup in front of alerts, which is done for the events that rules look at."""
    if not isinstance(stream, Enriched):
        return None
    if stream.mode != "latest" or stream.how != "left":
        raise InvalidPipeline(
            "Rules see what a table says now, and of events it says nothing of, too",
            hint=f"Let mode be 'latest' and how be 'left', or publish what is enriched to a topic "
            f"and look at that. See {where}",
        )
    return stream


def _check_names(stream: Stream, own: Sequence[str], where: Where) -> None:
    """Return if what a user has named can stand beside what alerts have names for."""
    taken = [name for name in own if name.lower() in (ALERT, RULE, *_AFTER_EVENT)]
    taken += [name for name in stream.columns if name.lower() in (RECENT, *_OF_LATE)]
    if taken:
        raise InvalidPipeline(
            f"A column cannot be called {taken[0]!r} here: alerts have something else of that name",
            hint=f"Give yours another name with select(). See {where}",
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
