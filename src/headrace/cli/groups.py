"""`headrace groups`: consumer groups, their members and their lag."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer
from rich.table import Table

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, Yes, confirm, new_app, show_help
from headrace.cli.output import moment, plain, show, show_json, table
from headrace.clock import SECOND, SystemClock
from headrace.log import GroupState, open_log, parse_position
from headrace.wording import count, span

app = new_app()

Name = Annotated[str, typer.Argument(metavar="NAME", help="The group.", show_default=False)]

IDLE = "idle: more members than partitions"


@app.callback(invoke_without_command=True)
def groups(ctx: typer.Context) -> None:
    """List, describe, reset and delete consumer groups."""
    show_help(ctx)


@app.command("list")
def list_groups(log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """List the groups of a log. With --json, one object per line."""
    with open_log(log, create=False) as opened:
        states = [opened.group(name) for name in opened.groups()]
    if json:
        for state in states:
            show_json(state.summary())
        return
    if not states:
        say("There are no groups: 'headrace consume TOPIC --group NAME' creates one")
        return
    lines = table("group", ">members", "topics", ">lag", ">behind")
    for state in states:
        lines.add_row(
            plain(state.name, "bold"),
            count(len(state.members)),
            plain(", ".join(state.topics) or "-"),
            count(state.lag),
            span(state.seconds),
        )
    show(lines)


@app.command("describe")
def describe(name: Name, log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Show a group's members, and its lag per partition in records and in time."""
    with open_log(log, create=False) as opened:
        state = opened.group(name)
    if json:
        members = [
            dataclasses.asdict(member)
            | {
                "partitions": [list(place) for place in member.partitions],
                "heartbeat": moment(member.heartbeat),
                "idle": member.idle,
            }
            for member in state.members
        ]
        lags = [dataclasses.asdict(lag) for lag in state.lags]
        show_json(state.summary() | {"members": members, "lags": lags})
        return
    heading = Table.grid(padding=(0, 2, 0, 0))
    heading.add_column(style="dim")
    heading.add_row("group", plain(state.name, "bold"))
    way = f" ({state.assignor} assignment)" if state.assignor else ""
    heading.add_row("generation", f"{count(state.generation)}{way}")
    heading.add_row("lag", f"{count(state.lag)} records, {span(state.seconds)} behind")
    show(heading, "", _members(state), "", _lags(state))


@app.command("reset")
def reset(
    name: Name,
    *,
    topic: Annotated[
        str,
        typer.Option(metavar="TOPIC", help="The topic whose offsets to move.", show_default=False),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="POSITION",
            help="earliest, latest, an offset (42), a time (2026-01-31T12:00:00Z) "
            "or a commit (commit:7).",
            show_default=False,
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the new offsets.")] = False,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Move the offsets of a group without members to a position in a topic."""
    position = parse_position(to)
    with open_log(log, create=False) as opened:
        partitions = opened.topic(topic).topic.partitions
        before: dict[int, int | None] = {}
        if name in opened.groups():
            lags = opened.group(name).lags
            before = {lag.partition: lag.committed for lag in lags if lag.topic == topic}
        if dry_run:
            after = {p: opened.offset_at(topic, p, position) for p in range(partitions)}
        else:
            after = opened.reset_group(name, topic, position)
    if json:
        offsets = {str(p): {"before": before.get(p), "after": after[p]} for p in sorted(after)}
        show_json({"group": name, "topic": topic, "dry_run": dry_run, "offsets": offsets})
        return
    lines = table("topic", ">partition", ">offset before", ">offset after")
    for partition in sorted(after):
        known = before.get(partition)
        lines.add_row(
            plain(topic),
            str(partition),
            "-" if known is None else count(known),
            count(after[partition]),
        )
    show(lines)
    if dry_run:
        say("Nothing was changed")


@app.command("delete")
def delete(name: Name, yes: Yes = False, log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Delete a group without members, and its offsets."""
    with open_log(log, create=False) as opened:
        opened.group(name)
        confirm(f"Delete group {name!r} and its offsets?", yes=yes)
        opened.delete_group(name)
    if json:
        show_json({"deleted": name})
    else:
        say(f"Deleted group {name!r}")


def _members(state: GroupState) -> Table:
    lines = table("member", "partitions", ">last heartbeat")
    now = SystemClock().now()
    for member in state.members:
        places = ", ".join(f"{topic}/{partition}" for topic, partition in member.partitions)
        lines.add_row(
            plain(member.id),
            plain(IDLE, "yellow") if member.idle else plain(places),
            "-"
            if member.heartbeat is None
            else f"{span(max(0, now - member.heartbeat) / SECOND)} ago",
        )
    if not state.members:
        lines.add_row(plain("no members: nobody is reading", "dim"))
    return lines


def _lags(state: GroupState) -> Table:
    lines = table("topic", ">partition", ">committed", ">end", ">lag", ">behind", "member")
    for lag in state.lags:
        lines.add_row(
            plain(lag.topic),
            str(lag.partition),
            "-" if lag.committed is None else count(lag.committed),
            count(lag.end),
            plain(count(lag.records), "yellow" if lag.records else "green"),
            span(lag.seconds),
            plain(lag.member or "-"),
        )
    return lines
