"""`headrace consume`: the records of a topic, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headrace.cli.consuming import Printer, Wanted, read_as_member, read_on, read_once
from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app
from headrace.errors import UserError
from headrace.log import OnceBy, open_log, parse_position

if TYPE_CHECKING:
    from headrace.eventsourcing.current import Current

app = new_app()


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    *,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Continue from the offsets of this group, and commit what was printed.",
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Where to start; with --group, only in partitions without a committed offset.",
            show_default=True,
        ),
    ] = "earliest",
    stop: Annotated[
        str | None,
        typer.Option("--to", metavar="POSITION", help="Where to stop. Default: the current end."),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", metavar="P", help="Only this partition; may be repeated."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--max", "-n", metavar="N", min=1, help="Stop after N records.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow", "-f", help="Wait for new records until Ctrl-C, or stop."
        ),
    ] = False,
    commit: Annotated[
        Literal["before", "after"] | None,
        typer.Option(
            metavar="before|after",
            help="Commit offsets before printing (at most once: a crash can lose records) or after "
            "it (at least once: a crash can repeat records; the default).",
        ),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Static name of this member: after a crash, the next member with this name takes "
            "over at once.",
        ),
    ] = None,
    once_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Print only the first record for each value of a column. After a crash, a "
            "real-time run may write a record twice; the id of an alert is in column alert.",
        ),
    ] = None,
    headers: Annotated[bool, typer.Option("--headers", help="Show headers too.")] = False,
    domain: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:DOMAIN",
            help="Show the events or commands of this domain in the current versions of their "
            "types, instead of as they are stored.",
        ),
    ] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Print the records of a topic.

    A POSITION is earliest, latest, an offset (42), a time (2026-01-31T12:00:00Z) or a commit
    (commit:7). '--from 10 --to 20' prints offsets 10 to 19, '--from commit:10 --to commit:20'
    prints commits 11 to 20.

    With --json, one object per line: topic, partition, offset, key, value, timestamp, headers.
    Bytes that are UTF-8 are shown as text, others as {"base64": "…"}.
    """
    _check(group, stop, partitions, follow, commit, instance)
    current = None if domain is None else _current(domain, topic)
    begin = parse_position(start)
    end = None if stop is None else parse_position(stop)
    with open_log(log, create=False) as opened:
        state = opened.topic(topic)
        wanted = Wanted(state.topic, begin, end, tuple(sorted(set(partitions or ()))))
        once = None if once_by is None else OnceBy(once_by)
        printer = Printer(
            state.topic, json=json, headers=headers, limit=limit, once=once, current=current
        )
        if group is not None:
            read_as_member(
                opened,
                wanted,
                printer,
                group=group,
                follow=follow,
                commit=commit or "after",
                instance=instance,
            )
        elif follow:
            read_on(opened, wanted, printer)
        else:
            read_once(opened, wanted, printer)
    if current is not None and current.failed is not None:
        say(
            f"{current.unread:,} of them cannot be read, and are shown as they are stored: "
            f"{current.failed.message}"
        )


def _current(domain: str, topic: str) -> Current:
    # Most topics are of no domain, and this loads the user's code.
    from headrace.cli.domain_words import load_domain
    from headrace.eventsourcing.current import Current

    return Current(load_domain(domain), topic)


def _check(
    group: str | None,
    stop: str | None,
    partitions: list[int] | None,
    follow: bool,
    commit: str | None,
    instance: str | None,
) -> None:
    """Raise if options contradict each other."""
    if group is None:
        for option, given in (("--commit", commit), ("--instance", instance)):
            if given is not None:
                raise UserError(f"{option} needs a group", hint="Add --group NAME")
    else:
        for option, unfit in (("--to", stop), ("--partition", partitions)):
            if unfit:
                raise UserError(
                    f"{option} cannot be combined with --group",
                    hint="The group's offsets and members decide what is read; leave out --group",
                )
    if follow and stop is not None:
        raise UserError("--to cannot be combined with --follow", hint="Leave out one of them")
