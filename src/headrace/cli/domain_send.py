"""`headrace domain send` and `run`: commands of people and of process managers."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.asked import Asked
from headrace.cli.domain_tables import show_answer
from headrace.cli.domain_words import (
    Keys,
    Reference,
    load_domain,
    load_process,
    opened,
    parse_aggregate,
    parse_command,
    parse_moment,
    parse_pairs,
    parse_target,
)
from headrace.cli.failures import REFUSED, say
from headrace.cli.modules import users_failures
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl
from headrace.cli.output import show_json
from headrace.errors import UserError
from headrace.eventsourcing import Decision, Refused
from headrace.wording import many


def send(
    reference: Reference,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The aggregate and its id, account/a-1, or the name of a decision.",
            show_default=False,
        ),
    ],
    command: Annotated[
        str,
        typer.Argument(metavar="COMMAND", help="The name of the command.", show_default=False),
    ],
    fields: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIELD=VALUE]...",
            help="The fields of the command, or one JSON object.",
            show_default=False,
        ),
    ] = None,
    *,
    id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The command's id. Sent again with the same one, it has no second effect, and "
            "the same answer.",
        ),
    ] = None,
    expect: Annotated[
        int | None,
        typer.Option(metavar="VERSION", help="Fail if the aggregate has another version."),
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="NAME=VALUE", help="Who or why: who=mia; may be repeated."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When it happened. Default: now."),
    ] = None,
    keys: Keys = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Send a command: its events are appended in one commit, or it is refused with the reason.

    Creates the log and the domain's topics if they are not there. The exit code is 3 if a rule
    refuses the command. The refusal is recorded too.
    """
    declared = load_domain(reference)
    to = parse_target(declared, target)
    moment = None if at is None else parse_moment(at)
    metadata = parse_pairs(meta or [], "metadata")
    if expect is not None and isinstance(to.decider, Decision):
        raise UserError(
            f"{target!r} is a decision over several aggregates, which have no version together",
            hint="Leave out --expect: what it decides on is checked when it is committed",
        )
    with users_failures(), opened(declared, log, keys, create=True) as store:
        request = parse_command(to.decider, command, fields or [])
        if isinstance(to.decider, Decision):
            answer = store.decide_across(to.decider, request, id=id, metadata=metadata, at=moment)
        else:
            aggregate, one = parse_aggregate(declared, target)
            answer = store.handle(
                aggregate, one, request, id=id, expect=expect, metadata=metadata, at=moment
            )
    show_answer(declared, to, answer, json=json)
    if isinstance(answer, Refused):
        raise typer.Exit(REFUSED)


def run(
    reference: Reference,
    process: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:PROCESS",
            help="The process manager: pipelines/bank.py:transfers.",
            show_default=False,
        ),
    ],
    *,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop when there is nothing left to react to."),
    ] = False,
    keys: Keys = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Run a process manager: it reacts to events and sends commands, each once.

    Several may run at a time, and one that is killed is continued by the next. Ctrl-C or SIGTERM
    ends it.
    """
    declared, found = load_domain(reference), load_process(process)
    asked = Asked()
    with users_failures(), opened(declared, log, keys) as store, asked.listening():
        sent = found.run(store, until_caught_up=until_caught_up, stop=lambda: bool(asked.signal))
    if json:
        show_json({"process": found.name, "sent": sent})
    else:
        say(f"{found.name} sent {many(sent, 'command')}")
    raise typer.Exit(asked.code)
