"""`headrace consume`: the records of a topic, for people and for programs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from headrace.cli.consuming import Wanted, read_as_member, read_on, read_once
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app
from headrace.cli.printing import Printer
from headrace.errors import UserError
from headrace.log import OnceBy, open_log, parse_position

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
            help="Go on where this group has stopped, and move it on past what was printed.",
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Where to begin; with --group, only where the group has not been yet.",
            show_default=True,
        ),
    ] = "earliest",
    stop: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="POSITION", help="Where to end, by default at what is there now."
        ),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", metavar="P", help="Only this partition; may be repeated."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--max", "-n", metavar="N", min=1, help="Stop after so many records."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow/--no-follow", "-f", help="Wait for more, until Ctrl-C, or stop."),
    ] = False,
    commit: Annotated[
        Literal["before", "after"] | None,
        typer.Option(
            metavar="before|after",
            help="Move the group on before records are printed (a crash can lose some) or after "
            "it (a crash can repeat some; the default).",
        ),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="This member's fixed name in its group: after a crash the next one with this "
            "name takes its place at once.",
        ),
    ] = None,
    once_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Only the first record of each value of a column: what was written in real time "
            "may be there twice after a crash, and an alert has an id, alert.",
        ),
    ] = None,
    headers: Annotated[bool, typer.Option("--headers", help="Show headers as well.")] = False,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Print the records of a topic.

    A POSITION is earliest, latest, an offset (42), a time (2026-01-31T12:00:00Z) or a commit
    (commit:7). '--from 10 --to 20' gives the offsets 10 to 19, '--from commit:10 --to commit:20'
    the commits 11 to 20.

    With --json, one object per line: topic, partition, offset, key, value, timestamp, headers.
    Bytes that are UTF-8 are shown as text, others as {"base64": "…"}.
    """
    _check(group, stop, partitions, follow, commit, instance)
    begin = parse_position(start)
    end = None if stop is None else parse_position(stop)
    with open_log(log, create=False) as opened:
        state = opened.topic(topic)
        wanted = Wanted(state.topic, begin, end, tuple(sorted(set(partitions or ()))))
        once = None if once_by is None else OnceBy(once_by)
        printer = Printer(state.topic, json=json, headers=headers, limit=limit, once=once)
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


def _check(
    group: str | None,
    stop: str | None,
    partitions: list[int] | None,
    follow: bool,
    commit: str | None,
    instance: str | None,
) -> None:
    """Return if the options go together."""
    if group is None:
        for option, given in (("--commit", commit), ("--instance", instance)):
            if given is not None:
                raise UserError(f"{option} is for a group", hint="Add --group NAME")
    else:
        for option, unfit in (("--to", stop), ("--partition", partitions)):
            if unfit:
                raise UserError(
                    f"{option} does not go with --group",
                    hint="A group's offsets and members decide what is read; leave out the group",
                )
    if follow and stop is not None:
        raise UserError("--to does not go with --follow", hint="Leave out one of them")
