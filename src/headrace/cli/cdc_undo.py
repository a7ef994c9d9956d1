"""`headrace cdc undo`: SQL that takes back captured changes, for a person to run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl
from headrace.cli.output import show_json
from headrace.errors import UserError
from headrace.wording import many

if TYPE_CHECKING:
    from headrace.cdc.undo.changes import Changes


def undo(
    prefix: Annotated[
        str | None,
        typer.Argument(
            metavar="[PREFIX]",
            help="The captured database, by the prefix of its topics. Default: all there is.",
            show_default=False,
        ),
    ] = None,
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME|commit:N",
            help="Undo what was committed in the database at this time or later.",
            show_default=False,
        ),
    ],
    stop: Annotated[
        str,
        typer.Option(
            "--to", metavar="TIME|commit:N", help="And before this time.", show_default=False
        ),
    ],
    tables: Annotated[
        str | None,
        typer.Option(metavar="T,T", help="Only these tables: orders, or public.orders."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the script to a new file."),
    ] = None,
    rehearsal: Annotated[
        bool, typer.Option("--rehearsal", help="Let the script roll back at its end.")
    ] = False,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", help="Undo what is left, if compaction or retention has removed changes."
        ),
    ] = False,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Write SQL that takes back captured changes. It is never run here: read it, then run it.

    The script has the inverse of each change, the last one first, in the dialect of the database,
    and is one transaction. A row that has changed since is left as it is, with all earlier changes
    of it, and the script's last SELECT lists those rows.

    A TIME is in ISO 8601, such as 2026-01-31T12:00:00Z, and is that of the commit in the database.
    commit:N is a commit of the log. With --json, one object on the script, which --output writes.
    """
    # Imported here, since they load Arrow.
    from headrace.cdc.undo.changes import Range, chosen_topics, read_changes
    from headrace.cdc.undo.script import dialect_of, write_script
    from headrace.log import open_log, parse_position

    if json and output is None:
        raise UserError("--json has no place for the script", hint="Add --output FILE")
    wanted = Range.between(parse_position(start), parse_position(stop))
    names = [name.strip() for name in (tables or "").split(",") if name.strip()]
    with open_log(log, create=False) as opened:
        topics = chosen_topics(opened, prefix, names)
        changes = read_changes(opened, topics, wanted, partial=partial)
    if changes.transactions:
        what = f"of the changes from {start} to {stop}"
        dialect = dialect_of(changes)
        _write(write_script(changes, what, rehearsal=rehearsal), output)
        if not json:
            _tell(changes)
            if output is not None:
                say(f"Wrote {output}. Read it, then run it: {dialect.run}")
    elif not json:
        say(f"There are no changes from {start} to {stop} that can be undone")
        _tell(changes)
    if json:
        show_json(_as_json(changes, output))


def _write(lines: Iterator[str], output: Path | None) -> None:
    """Print the script, or write it to a file that nobody else can read: it has rows in it."""
    if output is None:
        for line in lines:
            print(line)
        return
    try:
        number = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UserError(f"{output} exists", hint="Choose another name") from None
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror}") from None
    with open(number, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def _tell(changes: Changes) -> None:
    """Print what the script takes back, and what it does not."""
    if changes.transactions:
        transactions = many(len(changes.transactions), "transaction")
        say(f"Takes back {many(changes.count, 'change')} of {transactions}")
    for text in changes.removed:
        say(f"warning: {text}")
    for topic, number in changes.unknown.items():
        say(f"warning: {many(number, 'change')} in {topic} cannot be undone: no row from before")
    for topic, number in changes.found.items():
        found = many(number, "difference")
        say(f"warning: {found} in {topic} cannot be undone: found by a snapshot")


def _as_json(changes: Changes, output: Path | None) -> dict[str, object]:
    return {
        "file": str(output) if changes.transactions else None,
        "transactions": len(changes.transactions),
        "changes": changes.count,
        "tables": sorted({table.topic for table in changes.tables}),
        "not_undone": {
            "no_before": dict(changes.unknown),
            "found_by_snapshot": dict(changes.found),
            "removed": list(changes.removed),
        },
    }
