"""The Spark session: as many partitions as cores, and a quiet console."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace.errors import InvalidSetting, NoJava
from headrace.forks import at_exit
from headrace.runtime.cluster import check_master, is_cluster, on_this_machine, ship
from headrace.runtime.data_source import LogSource
from headrace.runtime.prefork import starting
from headrace.runtime.spark_internals import remember_classes, silence_accumulators
from headrace.servers.java.archive import options
from headrace.servers.java.home import BRIEF, java_home

_RETRIES = 3
"""Attempts of a task, in case its Python worker is killed."""

_DRIVER = ("spark.driver.host", "spark.driver.bindAddress")

STATE_STORES = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark without generated code. Compiling it costs more than it saves in a short run."""


@dataclass(frozen=True)
class SparkSettings:
    """The resources of Spark.

    `state` is the state store: `memory` is faster, `rocksdb` can hold more than memory.
    """

    cores: int = 0
    """0 means all."""
    memory: str = "2g"
    shuffle_partitions: int = 0
    """0 means one for each core. The first run of a pipeline fixes it."""
    state: Literal["memory", "rocksdb"] = "memory"
    brief: bool = False
    """For a run of minutes: Java compiles less, so it starts in half the time and runs slower."""
    master: str = ""
    """The cluster, as spark://HOST:PORT. Without one, Spark runs in this process."""
    slots: int = 0
    """The least number of task slots. All tasks of a real-time query run at once, and mostly wait,
    so it needs more slots than cores."""

    def __post_init__(self) -> None:
        if self.master:
            check_master(self.master)
        if self.state not in STATE_STORES:
            raise InvalidSetting(
                f"state cannot be {self.state!r}", hint=f"Use {' or '.join(STATE_STORES)}"
            )

    @property
    def remote(self) -> bool:
        """True if workers may be on other machines."""
        return bool(self.master) and not on_this_machine(self.master)

    @property
    def tasks(self) -> int:
        return self.cores or len(os.sched_getaffinity(0))


def configuration(settings: SparkSettings) -> dict[str, str]:
    """The settings that differ from Spark's defaults. `bench` gives the baselines the same."""
    return {
        # 200 partitions are for a cluster; adaptive execution does not apply to streams.
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions or settings.tasks),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": settings.memory,
        # Spark listens on loopback only, unless workers are on other machines.
        **({} if settings.remote else dict.fromkeys(_DRIVER, "127.0.0.1")),
        # Other users of this machine cannot connect: Spark generates a secret and keeps it in
        # memory. The secret of a cluster is set by its administrator.
        **({} if settings.master else {"spark.authenticate": "true"}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The log decides when a window is final, so Spark needs no empty batches.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # This one writes with java.io and a rename. The default forks a process for each file, to
        # read its permissions.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing."
            "FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES[settings.state],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Spark would record the source line of each column, at half the cost of making it. The
        # errors of headrace name the user's line already.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **(_INTERPRETED if settings.brief else {}),
    }


def spark_session(
    settings: SparkSettings | None = None,
    *,
    log_file: Path | None = None,
    jars: Sequence[Path] = (),
) -> SparkSession:
    """Return the session of this process, made if there is none. Spark logs to `log_file`.

    An existing session, such as a notebook's, is used as it is. A new session also loads `jars`.
    """
    settings = settings or SparkSettings()
    spark = SparkSession.getActiveSession()
    if spark is None:
        _find_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        log_file = log_file or Path(tempfile.mkdtemp(prefix="headrace-")) / "spark.log"
        log_file.parent.mkdir(parents=True, exist_ok=True)
        remember_classes()
        tasks = max(settings.tasks, settings.slots)
        quiet = Path(__file__).with_name("log4j2.properties")
        master = settings.master or f"local[{tasks},{_RETRIES}]"
        builder = SparkSession.builder.master(master)
        for name, value in (configuration(settings) | _of_cluster(settings)).items():
            builder = builder.config(name, value)
        if jars:
            builder = builder.config("spark.jars", ",".join(map(str, jars)))
        java = [
            f"-Dlog4j2.configurationFile={quiet}",
            f"-Dheadrace.spark.log={log_file.resolve()}",
            *(BRIEF if settings.brief else ()),
            *(archived := options("spark", spark_class_path())),
        ]
        quoted = " ".join(f'"{option}"' for option in java)
        builder = builder.config("spark.driver.extraJavaOptions", quoted)
        try:
            with _stderr_to(log_file), _forked_python(settings), _pandas_loaded(), _ended_with_us():
                spark = builder.appName("headrace").getOrCreate()
        except PySparkRuntimeError as error:
            raise NoJava(
                f"Spark did not start: {error}",
                hint=f"Spark needs Java 17 or newer, at JAVA_HOME or on the PATH. See {log_file}",
            ) from None
        # These would print a traceback if Java is killed, which a pipeline reports itself.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        # These print JSON for errors that a pipeline reports with the user's line.
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
        silence_accumulators(spark)
        if not archived and os.environ.get("HEADRACE_ARCHIVE") != "off":
            at_exit(_make_archive)
    if is_cluster(spark):
        ship(spark)
    elif spark.sparkContext.pythonExec == sys.executable:
        spark.sparkContext.pythonExec = starting.python()
    spark.dataSource.register(LogSource)
    return spark


def _make_archive() -> None:
    """Make the class archive for the next start, in a process that nobody waits for."""
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "headrace.application.warm", "spark"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HEADRACE_ARCHIVE": "off"},
            start_new_session=True,
        )


def spark_class_path() -> str:
    """The class path that Spark's scripts start the driver with."""
    home = _find_spark_home()
    return f"{home}/conf{os.pathsep}{home}/jars/*"


def _of_cluster(settings: SparkSettings) -> dict[str, str]:
    """The settings of a cluster."""
    if not settings.master:
        return {}
    found = {"spark.executor.memory": settings.memory}
    if settings.cores:
        found["spark.cores.max"] = str(settings.cores)
    if settings.brief:
        found["spark.executor.extraJavaOptions"] = " ".join(BRIEF)
    return found


@contextlib.contextmanager
def set_meanwhile(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set Spark settings for queries that start in the block. They keep them."""
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@contextlib.contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Let processes that start in the block write stderr to a file: the JVM logs early."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def _forked_python(settings: SparkSettings) -> Iterator[None]:
    """Let a Spark in this process look for data sources in a forked Python, loaded meanwhile."""
    name = "PYSPARK_DRIVER_PYTHON"
    if settings.master or name in os.environ:
        yield
        return
    os.environ[name] = starting.python()
    try:
        yield
    finally:
        del os.environ[name]


@contextlib.contextmanager
def _pandas_loaded() -> Iterator[None]:
    """Import pandas in the block, if it is installed: pyspark does at its first call of Java."""

    def load() -> None:
        with contextlib.suppress(ImportError):
            importlib.import_module("pandas")

    loading = threading.Thread(target=load)
    loading.start()
    try:
        yield
    finally:
        loading.join()


@contextlib.contextmanager
def _ended_with_us() -> Iterator[None]:
    """Kill the JVM that starts in the block if the block is left by an error or by Ctrl-C.

    It could not report back any more, and would wait forever.
    """
    before = _java_children()
    try:
        yield
    except BaseException:
        for process in _java_children() - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        raise


def _java_children() -> set[int]:
    """The child processes that run Spark's launcher or its JVM, where /proc shows them."""
    found = set()
    # Not /proc/self/task/*/children, which misses a child while another one ends.
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and b"spark" in (process / "cmdline").read_bytes():
                found.add(int(process.name))
    return found


def _find_java() -> None:
    """Point JAVA_HOME to the Java of headrace if the machine has none."""
    if (home := java_home()) is not None:
        os.environ["JAVA_HOME"] = str(home)
