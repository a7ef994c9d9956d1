"""`headrace domain describe`, `list`, `show`, `history`, `commands` and `what-if`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from headrace.cli import domain_tables as tables
from headrace.cli.domain_words import (
    Keys,
    Reference,
    Target,
    load_domain,
    opened,
    parse_aggregate,
    parse_past,
    parse_target,
)
from headrace.cli.modules import load_function, users_failures
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl
from headrace.errors import InvalidDomain, UserError
from headrace.eventsourcing import Decision, Store
from headrace.eventsourcing.history import batches_of
from headrace.eventsourcing.stored import StoredCommand, aggregate_tag, commands_in

One = Annotated[
    str,
    typer.Argument(metavar="AGGREGATE/ID", help="The aggregate: account/a-1.", show_default=False),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the last N.")]


def describe(reference: Reference, json: AsJson = False) -> None:
    """Show what a domain declares: its aggregates, decisions, commands and events.

    With --json, one object per line for each aggregate and decision.
    """
    tables.show_declared(load_domain(reference), json=json)


def list_aggregates(
    reference: Reference,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[AGGREGATE]", help="One kind: account.", show_default=False),
    ] = None,
    *,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """List the aggregates that have events, with their versions.

    Reads three columns of all events. With --json, one object per line.
    """
    declared = load_domain(reference)
    kind = None if name is None else declared.aggregate(name).name
    with opened(declared, log, None) as store:
        tables.show_aggregates(store.log, declared, kind, json=json)


def show(
    reference: Reference,
    one: One,
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="Its state then: at a time of its events (2026-01-31T12:00:00Z), after an event "
            "(version:3) or after a commit (commit:7).",
        ),
    ] = None,
    keys: Keys = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Show the state of an aggregate, now or at a moment of its history."""
    declared = load_domain(reference)
    aggregate, id = parse_aggregate(declared, one)
    past = {} if at is None else parse_past(at)
    with users_failures(), opened(declared, log, keys) as store:
        loaded = store.load(aggregate, id, **past)
    if not loaded.version and at is None:
        raise _none(one)
    tables.show_state(aggregate, one, loaded, at, json=json)


def history(
    reference: Reference,
    one: One,
    *,
    limit: Limit = None,
    keys: Keys = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Show the audit trail of an aggregate: each event, who and why, and what it changed.

    With --json, one object per line, with the whole state before and after.
    """
    declared = load_domain(reference)
    aggregate, id = parse_aggregate(declared, one)
    with users_failures(), opened(declared, log, keys) as store:
        found = list(store.history(aggregate, id, last=limit or 0))
    if not found:
        raise _none(one)
    tables.show_history(declared, aggregate, found[-(limit or 0) :], json=json)


def commands(
    reference: Reference,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="Only those to account/a-1, to every account, or to a decision.",
            show_default=False,
        ),
    ] = None,
    *,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only those that a rule refused.")
    ] = False,
    limit: Limit = None,
    keys: Keys = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Show the commands that were sent, and why those that were refused were.

    With --json, one object per line.
    """
    declared = load_domain(reference)
    to = None if target is None else parse_target(declared, target)
    if not declared.record_commands:
        raise InvalidDomain(
            f"The domain {declared.name!r} does not record its commands",
            hint="Without record_commands=False they are recorded from now on",
        )
    with opened(declared, log, keys) as store:
        found = [one for one in _commands(store, to) if one.reason is not None or not refused]
    tables.show_commands(declared, found[-(limit or 0) :], json=json)


def what_if(
    reference: Reference,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The aggregates, account, one of them, account/a-1, or a decision.",
            show_default=False,
        ),
    ],
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="The other 'decide', a function of a state and a command.",
            show_default=False,
        ),
    ],
    *,
    after: Annotated[
        int, typer.Option(metavar="COMMIT", help="Only commands of later commits.")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N.")
    ] = None,
    keys: Keys = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Show the recorded commands that another 'decide' would decide differently.

    Each is decided on the state that it had. Nothing is written. With --json, one object per line.
    """
    declared = load_domain(reference)
    to = parse_target(declared, target)
    decide = load_function(function, again=False)
    with users_failures(), opened(declared, log, keys) as store:
        found = store.what_if(to.decider, decide, aggregate_id=to.id, after=after)
        tables.show_differences(declared, to, list(islice(found, limit)), json=json)


def _commands(store: Store, to: Target | None) -> Iterator[StoredCommand]:
    """The recorded commands to a target, or all, in the order of their commits."""
    single = to is not None and (to.id is not None or isinstance(to.decider, Decision))
    tag = aggregate_tag(to.key) if to is not None and single else None
    found = batches_of(store.log, store.domain.commands.name, tag, upto=store.log.head())
    return commands_in(store.domain, found, store.keys, of=None if to is None else to.decider.name)


def _none(one: str) -> UserError:
    return UserError(f"{one!r} has no events", hint="'headrace domain list' has those with events")
