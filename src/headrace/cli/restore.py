"""`headrace restore`: a log from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.backup import copied_json
from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app
from headrace.cli.output import count, show_json, size

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
    """Make a log of a backup.

    It has the views and checkpoints of the backup. The log's folder must not be there, or be
    empty. All that is copied is read back and compared before the log is there. The backup stays
    as it is.
    """
    from headrace.application.safekeeping.backup import restore as make
    from headrace.cli.progress import bytes_shown

    with bytes_shown() as progress:
        made = make(source, log, progress)
    if json:
        show_json(copied_json(made))
        return
    say(f"Restored the log up to commit {count(made.commit)} in {made.folder}, {size(made.bytes)}")
