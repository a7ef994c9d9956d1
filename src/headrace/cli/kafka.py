"""`headrace kafka`: a local Kafka cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table

from headrace.cli.failures import say
from headrace.cli.options import AsJson, Yes, confirm, new_app, show_help
from headrace.cli.output import err, plain, show, show_json, table
from headrace.cli.spark_options import Brief, check_memory
from headrace.errors import InvalidSetting
from headrace.wording import count, many, size

if TYPE_CHECKING:
    from headrace.servers.kafka import Cluster, ClusterState

app = new_app()

PORT = 9092
"""Kafka's usual port."""

Data = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        envvar="HEADRACE_KAFKA",
        show_envvar=True,
        show_default=True,
        help="Data folder of the cluster.",
    ),
]
DEFAULT_DATA = "./kafka-data"


@app.callback(invoke_without_command=True)
def kafka(ctx: typer.Context) -> None:
    """Start and stop a local Kafka cluster."""
    show_help(ctx)


@app.command("up")
def up(
    *,
    brokers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=9, help="Number of brokers; 1 for a new cluster."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            envvar="HEADRACE_KAFKA_PORT",
            show_envvar=True,
            help=f"Port of the first broker; the others use the next ones. Default: {PORT}, or the "
            "port of the last start. 0 means any free ports.",
        ),
    ] = None,
    data: Data = DEFAULT_DATA,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A Kafka broker setting, which is stored."
        ),
    ] = None,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory for each broker.", show_default=True)
    ] = "512m",
    brief: Brief = False,
    json: AsJson = False,
) -> None:
    """Start a Kafka cluster on the loopback interface, and leave it running.

    Its jars, about 45 MB, are downloaded once and verified. Running brokers are not restarted.
    """
    from headrace.servers.kafka import Cluster

    check_memory(memory)
    cluster = Cluster(data, brief=brief)
    before = cluster.state()
    if port is None and not before.nodes:
        port = PORT
    state = _up_watched(cluster, brokers, port, _read_settings(settings or []), memory)
    if json:
        show_json(_as_json(state))
        return
    already = " already" if before.up else ""
    say(f"Kafka is up{already}, with {many(len(state.nodes), 'broker')}, in {data}")
    say(f"Use it with --log {state.url}, or: export HEADRACE_LOG={state.url}")


@app.command("status")
def status(data: Data = DEFAULT_DATA, json: AsJson = False) -> None:
    """Show the brokers of a cluster, and partitions that are offline or under-replicated."""
    from headrace.servers.kafka import Cluster

    state = Cluster(data).state()
    if json:
        show_json(_as_json(state))
        return
    if not state.nodes:
        say(f"There is no Kafka in {data}: 'headrace kafka up' starts one")
        return
    lines = table(">broker", "address", ">process", "state", ">leads", ">in sync")
    for node in state.nodes:
        word, style = ("up", "green") if node.joined else ("down", "red")
        if node.alive and not node.joined:
            word, style = "does not answer", "yellow"
        lines.add_row(
            str(node.id),
            f"127.0.0.1:{node.port}",
            str(node.pid or "-"),
            plain(word, style),
            count(node.leads),
            count(node.in_sync),
        )
    show(lines)
    for words, found in (
        ("has no leader", state.offline),
        ("is under-replicated", state.under_replicated),
    ):
        for one in found:
            replicas = f"replicas {list(one.replicas)}, in sync {list(one.in_sync)}"
            say(f"{one.topic}/{one.partition} {words}: {replicas}")


@app.command("down")
def down(
    *,
    remove: Annotated[
        bool, typer.Option("--remove", help="Also delete its topics and all other data.")
    ] = False,
    yes: Yes = False,
    data: Data = DEFAULT_DATA,
    json: AsJson = False,
) -> None:
    """Stop a cluster. Its data stays for the next start."""
    from headrace.servers.kafka import Cluster

    cluster = Cluster(data)
    if remove and cluster.state().nodes:
        confirm(f"Delete the Kafka cluster in {data} and all its topics?", yes=yes)
    stopped = cluster.down(remove=remove)
    if json:
        show_json({"stopped": stopped, "removed": remove})
        return
    say("Stopped Kafka" if stopped else f"No Kafka was running in {data}")


@app.command("tool", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def tool(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="TOOL",
            help="consumer-groups, topics, ... as in kafka-TOOL.sh",
            show_default=False,
        ),
    ],
    data: Data = DEFAULT_DATA,
) -> None:
    """Run one of Kafka's own tools, such as consumer-groups or topics.

    All arguments after the name go to the tool. It uses the cluster in FOLDER, unless
    --bootstrap-server is given.
    """
    from headrace.servers.kafka import Cluster
    from headrace.servers.kafka.tools import tool_command

    state = Cluster(data).state()
    command = tool_command(name, ctx.args, state.servers)
    sys.stdout.flush()
    os.execv(command[0], command)


def _up_watched(
    cluster: Cluster,
    brokers: int | None,
    port: int | None,
    settings: Mapping[str, str],
    memory: str,
) -> ClusterState:
    """Start a cluster; on a terminal, show downloads and progress."""
    from headrace.servers.java import Fetching

    progress = Fetching()
    doing = ["Looking"]
    spinner = Spinner("dots")

    def look() -> Table:
        line = Table.grid(padding=(0, 2, 0, 0))
        if progress.done < progress.jars:
            bar = ProgressBar(progress.jars, progress.done, width=20)
            line.add_row(f"Fetching {many(progress.jars, 'jar')}", bar, size(progress.bytes))
        else:
            line.add_row(spinner, doing[-1])
        return line

    def start() -> ClusterState:
        return cluster.up(
            brokers, port, settings, memory=memory, progress=progress, say=doing.append
        )

    if not sys.stderr.isatty():
        return start()
    # Drawn by another thread, so that drawing does not slow down the start.
    with Live(get_renderable=look, console=err(), transient=True, refresh_per_second=8):
        return start()


def _read_settings(texts: list[str]) -> dict[str, str]:
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidSetting(
                f"{text!r} is not a setting", hint="Write --set log.retention.hours=1"
            )
        settings[name.strip()] = value.strip()
    return settings


def _as_json(state: ClusterState) -> dict[str, Any]:
    return {
        "up": state.up,
        "url": state.url or None,
        "servers": state.servers,
        "folder": str(state.folder),
        "brokers": [asdict(node) for node in state.nodes],
        "partitions": [
            asdict(one) | {"leader": one.leader if one.leader >= 0 else None}
            for one in state.partitions
        ],
    }
