"""`headrace restore`: create a log from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.backup import copied_json
from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app
from headrace.cli.output import bytes_shown, show_json
from headrace.wording import count, size

app = new_app()


@app.command()
def restore(
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The backup.", show_default=False)
    ],
    *,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Create a log from a backup.

    The log gets the views and checkpoints of the backup. Its folder must be missing or empty. The
    copy is verified before the log appears. The backup does not change.
    """
    from headrace.application.safekeeping.backup import restore as make

    with bytes_shown() as progress:
        made = make(source, log, progress)
    if json:
        show_json(copied_json(made))
        return
    say(f"Restored the log up to commit {count(made.commit)} in {made.folder}, {size(made.bytes)}")
