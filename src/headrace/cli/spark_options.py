"""The options of commands that run an application on Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headrace.errors import InvalidSetting
from headrace.log.settings import parse_span

if TYPE_CHECKING:
    from headrace.plan.source_options import BatchLimits
    from headrace.runtime.realtime.settings import RealTime
    from headrace.runtime.session import SparkSettings

_MEMORY = re.compile(r"\d+[mg]", re.IGNORECASE)

MaxRows = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="End a batch after the commit with its Nth row."),
]
MaxCommits = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="End a batch after N commits.")
]
Cores = Annotated[int, typer.Option(metavar="N", min=0, help="How many cores to use; 0 means all.")]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="Memory for Spark.", show_default=True)]
StateStore = Literal["memory", "rocksdb"]
State = Annotated[
    StateStore,
    typer.Option(
        metavar="memory|rocksdb",
        help="Where open windows are kept: in memory, which is faster, or in RocksDB, which "
        "may be larger than memory.",
        show_default=True,
    ),
]
ShufflePartitions = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Into how many parts keys are spread; 0 means one for each core. It is fixed "
        "when an application first runs.",
    ),
]
Brief = Annotated[
    bool,
    typer.Option(
        "--brief",
        envvar="HEADRACE_BRIEF",
        show_envvar=True,
        help="For a run of minutes: Java compiles less, and is sooner at its best, which is less.",
    ),
]

Latency = Annotated[
    str | None,
    typer.Option(
        metavar="micro-batch|real-time",
        help="Let rows wait for a batch, or for none: in real time on a broker, for pipelines that "
        "can. By default as the application says.",
    ),
]
Checkpoint = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="In real time, write down every so often how far it is; after a crash, what came "
        "since then is written again.",
        show_default=True,
    ),
]
Hold = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="In real time, a row that was not read for so long is late.",
        show_default=True,
    ),
]


Master = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="HEADRACE_MASTER",
        show_envvar=True,
        help="The Spark cluster to run on, as spark://HOST:PORT; without one, Spark runs here. The "
        "application's own code is sent to its workers.",
    ),
]


def check_memory(memory: str) -> None:
    """Return if it is a size that Java understands."""
    if not _MEMORY.fullmatch(memory):
        raise InvalidSetting(f"{memory!r} is not a size of memory", hint="Write 512m or 2g")


def settings_of(
    cores: int,
    memory: str,
    shuffle_partitions: int,
    state: StateStore,
    brief: bool,
    master: str = "",
) -> SparkSettings:
    """What was asked of Spark. This brings Spark's own modules, and so takes a moment."""
    from headrace.runtime.session import SparkSettings

    return SparkSettings(cores, memory, shuffle_partitions, state, brief, master)


def real_time_of(checkpoint: str, hold: str) -> RealTime:
    """How a run in real time keeps its place."""
    from headrace.runtime.realtime.settings import RealTime

    return RealTime(parse_span(checkpoint), parse_span(hold))


def portions_of(max_rows: int | None, max_commits: int | None) -> BatchLimits:
    """How much of the log goes into a batch."""
    from headrace.plan.source_options import BatchLimits

    usual = BatchLimits()
    return BatchLimits(max_rows or usual.max_rows, max_commits or usual.max_commits)
