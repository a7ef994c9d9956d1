"""Options of commands that run an application on Spark."""

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
    typer.Option(metavar="N", min=1, help="Maximum rows per batch, rounded up to whole commits."),
]
MaxCommits = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Maximum commits per batch.")
]
Cores = Annotated[int, typer.Option(metavar="N", min=0, help="Number of cores; 0 means all.")]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="Memory for Spark.", show_default=True)]
StateStore = Literal["memory", "rocksdb"]
State = Annotated[
    StateStore,
    typer.Option(
        metavar="memory|rocksdb",
        help="State store: memory is faster; rocksdb holds more state than fits in memory.",
        show_default=True,
    ),
]
ShufflePartitions = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Number of shuffle partitions; 0 means one per core. It is fixed when an application "
        "first runs.",
    ),
]
Brief = Annotated[
    bool,
    typer.Option(
        "--brief",
        envvar="HEADRACE_BRIEF",
        show_envvar=True,
        help="For runs of a few minutes: Java compiles less, so it starts faster and peaks lower. "
        "'run --until-caught-up' is brief by itself if at most 200,000 rows wait in the folder.",
    ),
]

Latency = Annotated[
    str | None,
    typer.Option(
        metavar="micro-batch|real-time",
        help="Process rows in micro-batches, or each at once: real-time needs Kafka and a pipeline "
        "that supports it. Default: as the application declares.",
    ),
]
Checkpoint = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="In real time: interval of checkpoints. After a crash, results since the last one are "
        "written again.",
        show_default=True,
    ),
]
Hold = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="In real time: how long a row may wait to be read before it is late.",
        show_default=True,
    ),
]


Master = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="HEADRACE_MASTER",
        show_envvar=True,
        help="Spark cluster to run on, spark://HOST:PORT. Default: this machine. The application's "
        "code is sent to the workers.",
    ),
]


def check_memory(memory: str) -> None:
    """Raise unless it is a size that Java understands."""
    if not _MEMORY.fullmatch(memory):
        raise InvalidSetting(f"{memory!r} is not a memory size", hint="Write 512m or 2g")


def settings_of(
    cores: int,
    memory: str,
    shuffle_partitions: int,
    state: StateStore,
    brief: bool,
    master: str = "",
) -> SparkSettings:
    """The Spark settings in the options. This loads Spark's modules."""
    from headrace.runtime.session import SparkSettings

    return SparkSettings(cores, memory, shuffle_partitions, state, brief, master)


def real_time_of(checkpoint: str, hold: str) -> RealTime:
    """The real-time settings in the options."""
    from headrace.runtime.realtime.settings import RealTime

    return RealTime(parse_span(checkpoint), parse_span(hold))


def batch_limits_of(max_rows: int | None, max_commits: int | None) -> BatchLimits:
    """The batch limits in the options."""
    from headrace.plan.source_options import BatchLimits

    usual = BatchLimits()
    return BatchLimits(max_rows or usual.max_rows, max_commits or usual.max_commits)
