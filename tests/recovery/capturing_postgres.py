"""A process that captures a PostgreSQL database until it is killed: `URL FOLDER`.

It writes a line for each step that wrote something.
"""

from __future__ import annotations

import sys

from headrace.cdc import Limits, Progress, run
from headrace.cdc.postgres.source import PostgresSource
from headrace.log import open_log

LIMITS = Limits(changes=300, chunk_rows=100)
"""Small ones, so that there are many commits, and transactions with more changes than one has."""


def main(url: str, folder: str) -> None:
    last = None

    def tell(progress: Progress) -> None:
        nonlocal last
        if progress.reached != last:
            last = progress.reached
            print(last.position, flush=True)

    with open_log(f"file:{folder}") as log, PostgresSource(url) as source:
        run(source, log, "shop", limits=LIMITS, tell=tell)


if __name__ == "__main__":
    main(*sys.argv[1:])
