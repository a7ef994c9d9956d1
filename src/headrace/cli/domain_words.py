"""Words that a person types about a domain: the domain itself, a target, a command, a moment."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from headrace.cli.modules import load_module
from headrace.clock import to_datetime
from headrace.errors import InvalidPosition, UserError
from headrace.eventsourcing import (
    Aggregate,
    CommandType,
    Decision,
    Domain,
    KeyStore,
    Process,
    Store,
)
from headrace.eventsourcing.given import described, given, typed
from headrace.log import Commit, Time, open_log, parse_position

K = TypeVar("K")

Decider = Aggregate[Any] | Decision[Any]


@dataclass(frozen=True)
class Target:
    """The target of a command: an aggregate with its id, all of its kind, or a decision."""

    decider: Decider
    id: str | None = None

    @property
    def key(self) -> str:
        """The target as it is typed, and stored."""
        return self.decider.name if self.id is None else f"{self.decider.name}/{self.id}"


Reference = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:DOMAIN",
        help="The domain: pipelines.bank:bank or pipelines/bank.py:bank.",
        show_default=False,
    ),
]
Keys = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        envvar="HEADRACE_KEYS",
        show_envvar=True,
        show_default=False,
        help="The key store, which seals and opens personal fields.",
    ),
]


def load_domain(reference: str) -> Domain:
    """Load the domain of `package.module:domain` or `path/to/file.py:domain`."""
    return _load(reference, Domain, "domain", "bank")


def load_process(reference: str) -> Process[Any]:
    """Load the process manager of `package.module:process` or `path/to/file.py:process`.

    It may be in the file of a domain that was loaded before, and then is of that domain.
    """
    return _load(reference, Process, "process", "transfers", again=False)


@contextlib.contextmanager
def opened(domain: Domain, url: str, file: Path | None, *, create: bool = False) -> Iterator[Store]:
    """The store of a domain on a log, which has to have its topics unless they are created."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open_log(url, create=create))
        if not create and domain.events.name not in log.topic_ids([domain.events.name]):
            raise UserError(
                f"The log at {log.url} has no events of the domain {domain.name!r}",
                hint="'headrace domain send' appends the first. --log names another log",
            )
        keys = None if file is None else stack.enter_context(KeyStore(file, create=create))
        yield stack.enter_context(domain.open(log, keys=keys))


def parse_target(domain: Domain, text: str) -> Target:
    """The target `account/a-1`, `account` or the name of a decision."""
    name, slash, id = text.partition("/")
    decider = domain.decider(name)
    if not slash:
        return Target(decider)
    if isinstance(decider, Decision):
        raise UserError(
            f"{name!r} is a decision over several aggregates, so it has no ids",
            hint=f"Write {name}",
        )
    if not id:
        raise UserError(f"{text!r} has no id", hint=f"Write {name}/ID")
    return Target(decider, id)


def parse_aggregate(domain: Domain, text: str) -> tuple[Aggregate[Any], str]:
    """One aggregate, `account/a-1`."""
    target = parse_target(domain, text)
    if isinstance(target.decider, Decision):
        names = [f"{one.name}/ID" for one in domain.aggregates]
        raise UserError(
            f"{text!r} is a decision, and has no state", hint=f"Name one of {', '.join(names)}"
        )
    if target.id is None:
        raise UserError(
            f"{text!r} does not say which {text}",
            hint=f"Write {text}/ID; 'headrace domain list' has them",
        )
    return target.decider, target.id


def parse_command(decider: Decider, name: str, words: Sequence[str]) -> Any:
    """The command of that name, with its fields as FIELD=VALUE or as one JSON object."""
    kinds = {one.name: one for one in decider.commands}
    kind = kinds.get(name)
    if kind is None:
        raise UserError(
            f"{decider.name!r} has no command {name!r}",
            hint=f"It has: {', '.join(kinds)}" if kinds else "It takes no commands",
        )
    return given(kind.codec, _fields(kind, words))


def parse_pairs(words: Sequence[str], what: str, hint: str = "") -> dict[str, str]:
    """Words NAME=VALUE by name. A `hint` says which names there are."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UserError(f"{word!r} is not {what}", hint=f"Write NAME=VALUE{hint}")
        if name in found:
            raise UserError(f"{name!r} is given twice", hint="Give each name one value")
        found[name] = value
    return found


def parse_moment(text: str) -> datetime:
    """A time, in UTC if it has no zone."""
    try:
        position = parse_position(text)
    except InvalidPosition:
        position = None
    if not isinstance(position, Time):
        raise InvalidPosition(f"{text!r} is not a time", hint="As in 2026-01-31T12:00:00Z")
    return to_datetime(position.micros)


def parse_past(text: str) -> Mapping[str, Any]:
    """A time, `version:3` or `commit:7`, as an argument of `Store.load`."""
    kind, colon, number = text.partition(":")
    if colon and kind == "version" and number.isdecimal() and len(number) < 19:
        return {"version": int(number)}
    try:
        position = parse_position(text)
    except InvalidPosition:
        position = None
    if isinstance(position, Time):
        return {"at": to_datetime(position.micros)}
    if isinstance(position, Commit):
        return {"commit": position.number}
    raise InvalidPosition(
        f"{text!r} is not a moment in the history of an aggregate",
        hint="Use a time (2026-01-31T12:00:00Z), a version (version:3) or a commit (commit:7)",
    )


def _fields(kind: CommandType, words: Sequence[str]) -> Mapping[str, Any]:
    if len(words) != 1 or not words[0].lstrip().startswith("{"):
        return typed(
            kind.codec,
            parse_pairs(words, f"a field of {kind.name!r}", f". It has: {described(kind.kind)}"),
        )
    try:
        found: Mapping[str, Any] = json.loads(words[0])
    except ValueError as error:
        raise UserError(
            f"The fields of {kind.name!r} are not JSON: {error}",
            hint="""Write FIELD=VALUE, or one object: '{"cents": 100}'""",
        ) from None
    return found


def _load(reference: str, kind: type[K], noun: str, example: str, *, again: bool = True) -> K:
    module_name, colon, name = reference.rpartition(":")
    if not colon or not module_name or not name:
        raise UserError(
            f"{reference!r} does not name a {noun}",
            hint=f"Write MODULE:{noun.upper()}, as in bank.py:{example}",
        )
    module = load_module(module_name, again=again)
    found = getattr(module, name, None)
    if not isinstance(found, kind):
        names = [known for known, value in vars(module).items() if isinstance(value, kind)]
        raise UserError(
            f"{module_name!r} has no {noun} {name!r}",
            hint=f"It has: {', '.join(names)}" if names else f"It has no {noun}: es.{noun}(...)",
        )
    return found
