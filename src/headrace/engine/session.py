"""A Spark session fit for the machine: no more partitions than cores, and a quiet console."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from headrace.engine.source import LogSource
from headrace.errors import InvalidSetting, NoJava

_RETRIES = 3
"""A task whose Python worker was killed is tried again."""

_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

STATE_STORES = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


@dataclass(frozen=True)
class SparkSettings:
    """How much of the machine Spark may have.

    `state` is where open windows are kept between batches: in `memory`, which is faster, or in
    `rocksdb`, which may be larger than memory.
    """

    cores: int = 0
    """0 means all there are."""
    memory: str = "2g"
    shuffle_partitions: int = 0
    """0 means one for each core. It is fixed when a pipeline first runs."""
    state: Literal["memory", "rocksdb"] = "memory"
    brief: bool = False
    """For a run of minutes: Java compiles less, so it starts in half the time and stays slower."""

    def __post_init__(self) -> None:
        if self.state not in STATE_STORES:
            raise InvalidSetting(
                f"state cannot be {self.state!r}", hint=f"Use {' or '.join(STATE_STORES)}"
            )

    @property
    def tasks(self) -> int:
        return self.cores or len(os.sched_getaffinity(0))


def configuration(settings: SparkSettings) -> dict[str, str]:
    """What is set differently from Spark's defaults, and why. `bench` gives peers the same."""
    return {
        # 200 partitions are for a cluster; adaptive execution does not apply to streams.
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions or settings.tasks),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": settings.memory,
        # Nothing listens where others could reach it.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The log says when a window is final, so no batch is needed to let Spark know.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # A checkpoint's files are written with java.io and a rename, and without forking a
        # process for each to ask for its permissions.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing."
            "FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES[settings.state],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Spark would note where each column was made, at the cost of half of making it; headrace
        # tells a user's mistake at the user's own line already.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }


def spark_session(
    settings: SparkSettings | None = None,
    *,
    log_file: Path | None = None,
    jars: Sequence[Path] = (),
) -> SparkSession:
    """The session of this process, made if there is none yet. What Spark says goes to `log_file`.

    An existing session is used as it is: a notebook may have brought its own. `jars` are what a
    session that is made has beside Spark's own.
    """
    settings = settings or SparkSettings()
    spark = SparkSession.getActiveSession()
    if spark is None:
        _find_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        log_file = log_file or Path(tempfile.mkdtemp(prefix="headrace-")) / "spark.log"
        log_file.parent.mkdir(parents=True, exist_ok=True)
        quiet = Path(__file__).with_name("log4j2.properties")
        builder = SparkSession.builder.master(f"local[{settings.tasks},{_RETRIES}]")
        for name, value in configuration(settings).items():
            builder = builder.config(name, value)
        if jars:
            builder = builder.config("spark.jars", ",".join(map(str, jars)))
        java = f"-Dlog4j2.configurationFile={quiet} -Dheadrace.spark.log={log_file.resolve()}"
        if settings.brief:
            java += f" {_BRIEF}"
        builder = builder.config("spark.driver.extraJavaOptions", java)
        try:
            with _stderr_to(log_file):
                spark = builder.appName("headrace").getOrCreate()
        except PySparkRuntimeError as error:
            raise NoJava(
                f"Spark did not start: {error}",
                hint=f"It needs Java 17 or newer, at JAVA_HOME or on the PATH. See {log_file}",
            ) from None
        # These would print a traceback if Java were killed, which a pipeline tells of by itself.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        if (server := getattr(spark.sparkContext, "_accumulatorServer", None)) is not None:
            server.handle_error = lambda *_: None
    spark.dataSource.register(LogSource)
    return spark


@contextlib.contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Let a process started meanwhile inherit another stderr: the JVM talks before it is told."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _find_java() -> None:
    """Point JAVA_HOME to the Java that setup brought, where the machine has none of its own."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    own = Path(sys.prefix, "java")
    if not (own / "bin" / "java").exists():
        raise NoJava(
            "There is no Java, which Spark runs on",
            hint="Install Java 17 or newer and set JAVA_HOME, or run make setup, which brings one",
        )
    os.environ["JAVA_HOME"] = str(own)
