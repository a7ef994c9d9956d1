"""`headrace rebuild`: recompute a view beside the live one, compare, and switch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import spark_options as spark
from headrace.cli.failures import say
from headrace.cli.loading import load_app
from headrace.cli.options import DEFAULT_LOG, AppLogUrl, AppReference, AsJson, Yes, confirm, new_app
from headrace.cli.output import plain, show, show_json, table
from headrace.cli.view_tables import row_json, show_rows
from headrace.clock import to_datetime
from headrace.errors import InvalidPosition, UserError
from headrace.log import Commit, Offset, Time, parse_position
from headrace.store import Result
from headrace.store.sqlite.difference import KINDS, Change, Diff
from headrace.wording import count, many

if TYPE_CHECKING:
    from headrace.application.rebuild.rebuild import Rebuild

app = new_app()

_STYLES = {"changed": "yellow", "removed": "red", "added": "green"}


@app.command()
def rebuild(
    reference: AppReference,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view.", show_default=False)],
    *,
    diff: Annotated[
        bool, typer.Option("--diff", help="Only show what would change, and keep the new version.")
    ] = False,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME|COMMIT",
            help="Compute the view as of a time (2026-01-31T12:00:00Z) or a commit (42), and show "
            "its rows; with --diff, the differences from the live view.",
        ),
    ] = None,
    switch: Annotated[
        bool,
        typer.Option(
            "--switch",
            help="With --until: bring the view and its stores back to that moment. The next run "
            "continues from there.",
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Switch as soon as the application stops.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Switch even if the live view counts rows that are no longer in the log.",
        ),
    ] = False,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", metavar="N", min=1, help="Number of rows to show of each kind."
        ),
    ] = 20,
    yes: Yes = False,
    log: AppLogUrl = None,
    max_rows: spark.MaxRows = None,
    max_commits: spark.MaxCommits = None,
    cores: spark.Cores = 0,
    memory: spark.Memory = "2g",
    state: spark.State = "memory",
    shuffle_partitions: spark.ShufflePartitions = 0,
    brief: spark.Brief = False,
    master: spark.Master = "",
    json: AsJson = False,
) -> None:
    """Recompute a view beside the live one, compare the two, and switch.

    It builds the new version up to the position of the live view, shows the changed rows, and asks
    before it switches. Readers never see a mix of both. The changelog gets the differences; other
    outputs are not published again. With --json, one object per changed row, and last one with
    their numbers; with --until alone, one per row of the view.
    """
    spark.check_memory(memory)
    moment = None if until is None else _moment(until)
    looks = diff or (moment is not None and not switch)
    if switch and moment is None:
        raise UserError("--switch is for --until: without it, a rebuild asks and switches anyway")
    if looks and (yes or switch):
        raise UserError(
            f"{'--diff' if diff else '--until'} never switches, so there is nothing to confirm",
            hint="Leave out one of them" if diff else "--until with --switch does",
        )
    if not (looks or yes or sys.stdin.isatty()):
        raise UserError(
            "There is no terminal to ask on whether to switch",
            hint="Add --diff to see what would change, or --yes to switch",
        )
    declared = load_app(reference)
    # Imported here, since it loads Spark's modules.
    from headrace.cli.running import rebuild_watched

    def act(building: Rebuild, tell: Any, pause: Any) -> None:
        if looks and not diff:
            pause()
            _show_rows(building, limit, json=json)
        elif looks:
            found, lost = building.diff(limit, tell), building.lost
            pause()
            _show(found, switched=False, lost=lost, json=json)
            if moment is None and not json:
                say(f"Nothing was switched. To switch: headrace rebuild {reference} {view}")
        else:
            lost = building.lost
            agree = _agreement(pause, view, yes=yes, json=json)
            done = building.switch(
                agree, wait=wait, accept_loss=accept_loss, limit=limit, tell=tell
            )
            if json and done is not None:
                _show(done, switched=True, lost=lost, json=True)
            say(f"Switched: {view!r} is the new version, and the next run continues with it")
            if moment is not None:
                say(f"  → It is as of commit {building.until}. The next run reads what came after")

    rebuild_watched(
        declared,
        view,
        log or declared.log or DEFAULT_LOG,
        act,
        until=moment,
        back=switch,
        settings=spark.settings_of(cores, memory, shuffle_partitions, state, brief, master),
        batch_limits=spark.batch_limits_of(max_rows, max_commits),
    )


def _agreement(pause: Any, view: str, *, yes: bool, json: bool) -> Any:
    """A function that shows the changes and asks; a no ends the command."""

    def agree(found: Diff) -> bool:
        pause()
        if not json:
            _show(found, switched=False, lost=0, json=False)
        confirm(f"Replace the live version of {view!r} with the new one?", yes=yes)
        return True

    return agree


def _show(found: Diff, *, switched: bool, lost: int, json: bool) -> None:
    if json:
        for change in found.rows:
            show_json(_change_json(change))
        show_json(_diff_json(found, switched=switched, lost=lost))
        return
    _show_diff(found)
    if lost:
        say(f"The live view counts {many(lost, 'row')} that are no longer in the log")


def _show_rows(building: Rebuild, limit: int, *, json: bool) -> None:
    rows = building.rows()
    if json:
        for row in rows:
            show_json(row_json(row))
        return
    shown = [tuple(row.values()) for row in rows[:limit]]
    say(f"{building.step.name} as of commit {building.until}: {many(len(rows), 'row')}")
    if rows:
        show_rows(Result(tuple(rows[0]), shown, len(rows) > limit))


def _moment(text: str) -> datetime | int:
    match parse_position(text):
        case Offset(offset=number) | Commit(number=number):
            return number
        case Time(micros=micros):
            return to_datetime(micros)
        case _:
            raise InvalidPosition(
                f"{text!r} is neither a time nor a commit",
                hint="Write 2026-01-31T12:00:00Z, or the number of a commit",
            )


def _show_diff(diff: Diff) -> None:
    """Print the number of changed rows, and the first ones before and after the change."""
    counts = [(kind, getattr(diff, kind)) for kind in KINDS]
    summary = ", ".join(f"{count(number)} {kind}" for kind, number in counts)
    show(plain(f"{diff.view}: {summary}, {count(diff.same)} unchanged", "bold"))
    for what, names in (("new", diff.new_columns), ("gone", diff.gone_columns)):
        for name in names:
            show(plain(f"column {name!r} is {what}"))
    if not diff.rows:
        return
    keys = list(dict.fromkeys(name for change in diff.rows for name in change.key))
    lines = table("", *keys, "before → after")
    for change in diff.rows:
        lines.add_row(
            plain(change.kind, _STYLES[change.kind]),
            *(plain(_text(change.key.get(name))) for name in keys),
            plain(_changes(change)),
        )
    show(lines)
    for kind, number in counts:
        listed = sum(change.kind == kind for change in diff.rows)
        if listed < number:
            show(plain(f"and {many(number - listed, 'more row')} {kind}"))


def _change_json(change: Change) -> dict[str, Any]:
    """A changed row, by its key."""
    return {
        "change": change.kind,
        "key": row_json(change.key),
        "before": row_json(change.before) or None,
        "after": row_json(change.after) or None,
    }


def _diff_json(diff: Diff, *, switched: bool, lost: int) -> dict[str, Any]:
    """The numbers of changed rows."""
    return {
        "view": diff.view,
        "added": diff.added,
        "removed": diff.removed,
        "changed": diff.changed,
        "same": diff.same,
        "new_columns": list(diff.new_columns),
        "gone_columns": list(diff.gone_columns),
        "switched": switched,
        "lost": lost,
    }


def _changes(change: Change) -> str:
    if change.kind == "changed":
        return ", ".join(
            f"{name} {_text(old)} → {_text(change.after[name])}"
            for name, old in change.before.items()
        )
    return _row(change.before or change.after)


def _row(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    return "null" if value is None else str(row_json({"": value})[""])
