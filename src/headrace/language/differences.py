"""What is another between two declarations of a step, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from headrace.log.settings import format_span


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is another between two definitions of a step, in words."""
    found = []
    flat_before, flat_now = _flat(before), _flat(now)
    for name, what in _WORDS.items():
        old, new = flat_before.get(name), flat_now.get(name)
        if old == new:
            continue
        if name in _NAMED:
            found += _named(_NAMED[name], old or (), new or ())
        elif name == "merge" and old is not None and new is not None and len(old) == len(new):
            parts = enumerate(zip(old, new, strict=True), 1)
            changed = [(n, differences(was, now)) for n, (was, now) in parts if was != now]
            found += [f"in merged stream {n} {told}" for n, words in changed for told in words]
        elif name == "merge" and old is not None and new is not None:
            found.append(f"{len(old)} streams were merged and {len(new)} are")
        elif old is None or new is None:
            found.append(f"the {what} is {'new' if old is None else 'gone'}")
        else:
            found.append(f"the {what} was {_shown(name, old)} and is {_shown(name, new)}")
    return found or ["its steps are in another order"]


def _flat(definition: Mapping[str, Any]) -> dict[str, Any]:
    """All that is said in a chain of steps, by what is said. Later steps of a kind come first."""
    found: dict[str, Any] = {}
    here: Mapping[str, Any] | None = definition
    while here is not None:
        for name, value in here.items():
            if name in ("filter", "explode", "project") and name in found:
                found[name] = [*_several(found[name]), *_several(value)]
            elif name != "of":
                found[name] = value
        here = here.get("of")
    return found


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_WORDS = {
    "topic": "topic", "schema": "schema of the topic", "event_time": "event time",
    "top": "ranking", "distinct": "rule for duplicates", "by": "grouping", "key": "key of the view",
    "window": "window", "lateness": "lateness", "emit": "emission", "aggregates": "aggregates",
    "filter": "filter", "project": "columns", "explode": "exploded array", "merge": "merged stream",
    "table": "key of the table", "join": "kind of join", "on": "columns that are equal",
    "prefix": "prefix", "bounds": "bounds of the join", "enrich": "way to look up",
    "wait": "time to wait", "amend": "time to amend", "fetch": "remote table",
    "function": "function", "state": "state", "output": "output", "delay": "delay", "ttl": "ttl",
    "order": "order", "buckets": "number of buckets", "alerts": "look back", "rules": "rules",
    "lookup": "table that rules look things up in",
}  # fmt: skip

_NAMED = {"aggregates": "aggregate", "project": "column", "rules": "rule"}
"""Things that have a name each, and what one is called."""


def _named(what: str, old: Iterable[Any], new: Iterable[Any]) -> list[str]:
    """What became of things that have a name in front."""
    before, now = ({entry[0]: entry[1:] for entry in entries} for entries in (old, new))
    return [
        *(f"{what} {name!r} is new" for name in now if name not in before),
        *(f"{what} {name!r} is gone" for name in before if name not in now),
        *(
            f"{what} {name!r} is computed differently"
            for name in now
            if name in before and list(now[name]) != list(before[name])
        ),
    ]


def _shown(name: str, value: Any) -> str:
    if name == "lateness":
        delay, grace = (_span(part) for part in value)
        return f"{delay} and {grace} of grace"
    if name in ("delay", "ttl", "wait", "amend"):
        return _span(value)
    if name == "bounds":
        before, after, delay = map(_span, value)
        return f"{before} before to {after} after, with a delay of {delay},"
    if name == "function":
        return " of ".join(reversed(value))
    if name == "window":
        kind, *parts = value if isinstance(value[0], str) else ("", *value)
        spans = [_span(part) for part in parts]
        if kind:
            return f"{kind} {spans[0]}"
        size, every, offset = spans
        kind = f"tumbling {size}" if size == every else f"hopping {size} every {every}"
        return kind + (f" from {offset}" if parts[2] else "")
    if name == "distinct":
        keep, ttl, delay = value
        return f"the {keep} within {_span(ttl)}, with a delay of {_span(delay)}"
    if name == "alerts":
        event, within, limit = value
        return f"{_span(within)} from each {event!r}, at {limit:,} events at most,"
    if name == "top":
        n, by, *within = value
        return f"the top {n} by {by!r}" + (f" within {', '.join(within)}" if within else "")
    return ", ".join(map(str, value)) if isinstance(value, list) else repr(value)


def _span(span: int) -> str:
    return format_span(timedelta(microseconds=span))
