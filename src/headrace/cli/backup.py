"""`headrace backup`: copy a log with its views and checkpoints."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app
from headrace.cli.output import bytes_shown, show_json
from headrace.wording import count, many, size

if TYPE_CHECKING:
    from headrace.application.safekeeping.backup import Copied

app = new_app()


@app.command()
def backup(
    target: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The target, a new folder.", show_default=False)
    ],
    *,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Copy a log with its views and checkpoints while applications run.

    The copy is a consistent snapshot. It is verified before it gets its name, so a folder of that
    name is a complete backup. It includes tiered segments. `headrace restore` reads it.
    """
    from headrace.application.safekeeping.backup import backup as make

    with bytes_shown() as progress:
        made = make(log, target, progress)
    if json:
        show_json(copied_json(made))
        return
    for step in made.left_out:
        say(f"Left out the checkpoint of {step}: a run recomputes its state from the log")
    say(
        f"Copied the log up to commit {count(made.commit)} and the views of "
        f"{many(len(made.apps), 'application')} to {target}, {size(made.bytes)}"
    )


def copied_json(made: Copied) -> dict[str, Any]:
    """A copy as JSON."""
    return asdict(made) | {"folder": str(made.folder)}
