"""Domains as tables and as JSON: states, history, commands, answers."""

from __future__ import annotations

import json as jsons
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from rich.text import Text

from headrace.cli.domain_words import Decider, Target
from headrace.cli.failures import say
from headrace.cli.output import facts, moment, plain, show, show_json, table
from headrace.clock import to_micros
from headrace.eventsourcing import (
    Aggregate,
    Change,
    Decision,
    Difference,
    Domain,
    EventType,
    Handled,
    Loaded,
    Refusal,
    Refused,
    StoredCommand,
)
from headrace.eventsourcing.codec import Data, codec_of
from headrace.eventsourcing.given import described
from headrace.log import Log
from headrace.wording import count, many


def show_declared(domain: Domain, *, json: bool) -> None:
    """The declaration of a domain."""
    if json:
        for aggregate in domain.aggregates:
            show_json(_declared(aggregate) | {"events": _messages(aggregate.events)})
        for decision in domain.decisions:
            show_json(_declared(decision))
        return
    heading = facts()
    heading.add_row("domain", plain(domain.name, "bold"))
    heading.add_row("topics", plain(", ".join(topic.name for topic in domain.topics)))
    parts: list[Any] = [heading]
    deciders: list[Decider] = [*domain.aggregates, *domain.decisions]
    for one in deciders:
        events: Sequence[EventType] = ()
        if isinstance(one, Decision):
            lines, name = table("decision", "", "fields"), one.name
        else:
            lines, name, events = table("aggregate", "", "fields"), f"{one.name}/ID", one.events
        lines.add_row(plain(name, "bold"), "", "")
        for command in one.commands:
            lines.add_row("  command", plain(command.name), plain(described(command.kind)))
        for event in events:
            version = f" v{event.version}" if event.version > 1 else ""
            lines.add_row("  event", plain(event.name + version), plain(described(event.kind)))
        parts += ["", lines]
    show(*parts)


def show_answer(domain: Domain, to: Target, answer: Handled | Refused, *, json: bool) -> None:
    """The answer to a command."""
    single = isinstance(to.decider, Aggregate)
    if json:
        values: dict[str, Any] = {"target": to.key, "id": answer.id, "commit": answer.commit}
        values["outcome"] = "refused" if isinstance(answer, Refused) else "accepted"
        values["repeated"] = answer.repeated
        if isinstance(answer, Refused):
            values["reason"] = answer.reason
        else:
            values["events"] = [_event(domain, event) for event in answer.events]
        if single:
            values |= {"version": answer.version, "state": _data(answer.state)}
        show_json(values)
        return
    before = "Before: " if answer.repeated else ""
    if isinstance(answer, Refused):
        say(f"{before}Refused: {answer.reason}")
        return
    happened = "; ".join(_event_words(domain, event) for event in answer.events)
    where = "" if answer.commit is None else f" in commit {answer.commit}"
    say(f"{before}Accepted{where}: {happened or 'nothing happened'}")
    if single:
        say(f"{to.key} is at version {answer.version}: {words(_data(answer.state))}")


def show_aggregates(log: Log, domain: Domain, kind: str | None, *, json: bool) -> None:
    """The aggregates that have events."""
    columns = ["aggregate", "version", "at"]
    found = [batch.data for batch in log.read(domain.events.name, columns=columns)]
    rows = pa.Table.from_batches(found).select(columns) if found else pa.table({})
    grouped = []
    if found:
        sums = rows.group_by("aggregate").aggregate([("version", "max"), ("at", "max")])
        grouped = sums.sort_by("aggregate").to_pylist()
    chosen = [row for row in grouped if kind in (None, row["aggregate"].partition("/")[0])]
    if not chosen and not json:
        say("There are none: 'headrace domain send' appends events")
        return
    lines = table("aggregate", ">version", "last event")
    for row in chosen:
        last = moment(to_micros(row["at_max"]))
        if json:
            one = {"aggregate": row["aggregate"], "version": row["version_max"], "last": last}
            show_json(one)
        lines.add_row(plain(row["aggregate"], "bold"), count(row["version_max"]), last)
    if not json:
        show(lines)


def show_state(
    aggregate: Aggregate[Any], key: str, loaded: Loaded[Any], at: str | None, *, json: bool
) -> None:
    """The state of an aggregate."""
    data = aggregate.codec.data(loaded.state)
    if json:
        show_json(
            {"aggregate": key, "version": loaded.version, "commit": loaded.commit, "state": data}
        )
        return
    heading = facts()
    heading.add_row("aggregate", plain(key, "bold"))
    if at is not None:
        heading.add_row("at", plain(at))
    heading.add_row("version", f"{loaded.version}, of commit {loaded.commit}")
    for name, value in data.items():
        heading.add_row(plain(name), plain(_word(value), "bold"))
    show(heading)


def show_history(
    domain: Domain, aggregate: Aggregate[Any], changes: Sequence[Change[Any]], *, json: bool
) -> None:
    """The audit trail of an aggregate."""
    data = aggregate.codec.data
    lines = table(">version", ">commit", "at", "event", "change", "metadata")
    for change in changes:
        stored, before, after = change.event, data(change.before), data(change.after)
        at = moment(to_micros(stored.at))
        if json:
            show_json(
                {"aggregate": stored.aggregate, "version": stored.version}
                | {"commit": stored.commit, "at": at, "command": stored.command}
                | _event(domain, stored.event)
                | {"metadata": stored.metadata, "before": before, "after": after}
            )
            continue
        lines.add_row(
            str(stored.version), str(stored.commit), at,
            plain(_event_words(domain, stored.event)), _changed(before, after),
            plain(words(stored.metadata)),
        )  # fmt: skip
    if not json:
        show(lines)


def show_commands(domain: Domain, commands: Sequence[StoredCommand], *, json: bool) -> None:
    """Recorded commands with their outcomes."""
    if not commands and not json:
        say("There are none")
        return
    lines = table(">commit", "at", "to", "command", "outcome", "metadata")
    for one in commands:
        at, data = moment(to_micros(one.at)), _data(one.command)
        if json:
            show_json(
                {"commit": one.commit, "at": at, "id": one.id, "target": one.aggregate}
                | {"command": one.type, "fields": data, "outcome": one.outcome}
                | {"reason": one.reason, "metadata": one.metadata}
            )
            continue
        lines.add_row(
            str(one.commit), at, plain(one.aggregate), plain(f"{one.type} {words(data)}"),
            _outcome(one.reason), plain(words(one.metadata)),
        )  # fmt: skip
    if not json:
        show(lines)


def show_differences(
    domain: Domain, to: Target, found: Sequence[Difference], *, json: bool
) -> None:
    """Commands that another `decide` would decide differently."""
    lines = table(">commit", "to", "command", "state", "was", "would be")
    for one in found:
        command, state = one.command, _data(one.state)
        fields = _data(command.command)
        if json:
            show_json(
                {"commit": command.commit, "id": command.id, "target": command.aggregate}
                | {"command": command.type, "fields": fields, "state": state}
                | {"was": _plain(domain, one.was), "would": _plain(domain, one.would)}
            )
            continue
        lines.add_row(
            str(command.commit), plain(command.aggregate),
            plain(f"{command.type} {words(fields)}"), plain(words(state)),
            _decided(domain, one.was), _decided(domain, one.would),
        )  # fmt: skip
    if json:
        return
    if found:
        show(lines)
    say(f"{many(len(found), 'command')} to {to.key} would be decided differently. "
        "Nothing was written")  # fmt: skip


def words(data: Mapping[str, Any]) -> str:
    """Plain data in a line: cents=100 email=ada@example.org."""
    return " ".join(f"{name}={_word(value)}" for name, value in data.items())


def _word(value: Any) -> str:
    return value if isinstance(value, str) else jsons.dumps(value, ensure_ascii=False)


def _data(value: Any) -> Data:
    return codec_of(type(value)).data(value)


def _event(domain: Domain, event: Any) -> dict[str, Any]:
    return {"type": domain.type_of_event(event).name, "event": _data(event)}


def _event_words(domain: Domain, event: Any) -> str:
    return f"{domain.type_of_event(event).name} {words(_data(event))}".rstrip()


def _changed(before: Data, after: Data) -> Text:
    changes = [
        f"{name}: {_word(before[name])} → {_word(value)}"
        for name, value in after.items()
        if value != before[name]
    ]
    return plain(", ".join(changes))


def _outcome(reason: str | None) -> Text:
    return plain("accepted") if reason is None else plain(f"refused: {reason}", "yellow")


def _decided(domain: Domain, outcome: tuple[Any, ...] | Refusal) -> Text:
    if isinstance(outcome, Refusal):
        return _outcome(outcome.reason)
    return plain("; ".join(_event_words(domain, event) for event in outcome) or "nothing")


def _plain(domain: Domain, outcome: tuple[Any, ...] | Refusal) -> dict[str, Any]:
    if isinstance(outcome, Refusal):
        return {"refused": outcome.reason}
    return {"events": [_event(domain, event) for event in outcome]}


def _declared(one: Decider) -> dict[str, Any]:
    kind = "decision" if isinstance(one, Decision) else "aggregate"
    return {kind: one.name, "commands": _messages(one.commands)}


def _messages(messages: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "version": one.version, "fields": described(one.kind)}
        for one in messages
    ]
