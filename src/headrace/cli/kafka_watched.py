"""A cluster that starts, with something to look at meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table

from headrace.cli.output import err, many, size
from headrace.servers.java import Fetching
from headrace.servers.kafka import Cluster, ClusterState


def up_watched(
    cluster: Cluster,
    brokers: int | None,
    port: int | None,
    settings: Mapping[str, str],
    memory: str,
) -> ClusterState:
    """Start a cluster; on a terminal, show what is fetched and what is waited for."""
    told = Fetching()
    doing = ["Looking"]
    spinner = Spinner("dots")

    def look() -> Table:
        line = Table.grid(padding=(0, 2, 0, 0))
        if told.done < told.jars:
            bar = ProgressBar(told.jars, told.done, width=20)
            line.add_row(f"Fetching {many(told.jars, 'jar')}", bar, size(told.bytes))
        else:
            line.add_row(spinner, doing[-1])
        return line

    def start() -> ClusterState:
        return cluster.up(brokers, port, settings, memory=memory, told=told, say=doing.append)

    if not sys.stderr.isatty():
        return start()
    # Drawn by a thread of its own, so that the start has nothing to do with it.
    with Live(get_renderable=look, console=err(), transient=True, refresh_per_second=8):
        return start()
