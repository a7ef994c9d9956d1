"""Spark's private API, in one place: an upgrade of Spark has to be checked here.

`headrace.plan` has three more such places: `counters.observed_by`, `python_operators` and
`kafka.event_time.or_null`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.plan.counters import observed_by

_DROPPED = "numRowsDroppedByWatermark"


# A session


def executor_hosts(spark: SparkSession) -> set[str]:
    """The hosts of all executors, and of the driver."""
    status = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
    names = status.keys().toList().mkString(" ").split()
    return {name.rpartition(":")[0] for name in names}


def temporary_folder(spark: SparkSession) -> Path:
    """The folder that Spark serves files from, and removes when it ends."""
    return Path(str(spark.sparkContext._temp_dir))


def silence_accumulators(spark: SparkSession) -> None:
    """Keep Spark's accumulator server from printing a traceback when Java is killed."""
    if (server := getattr(spark.sparkContext, "_accumulatorServer", None)) is not None:
        server.handle_error = lambda *_: None


def remember_classes() -> None:
    """Let Python remember the Java packages and classes that it has looked up.

    pyspark names a class by its path, `jvm.org.apache.spark…`, and asks Java for each part of it
    each time. Java then looks for a class of that name in all of its 300 jars.
    """
    for kind in (JVMView, JavaPackage):
        if not hasattr(kind.__getattr__, "__wrapped__"):
            kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @functools.wraps(look_up)
    def remembered(self: Any, name: str) -> Any:
        found = look_up(self, name)
        # What is no class may become one with the next jar, and only looks like a package.
        if isinstance(found, JavaClass) or (isinstance(found, JavaPackage) and name.islower()):
            self.__dict__[name] = found
        return found

    return remembered


# A streaming query


def await_end(query: StreamingQuery, seconds: float) -> bool:
    """True if a query ends by itself within so many seconds. Its failure is raised."""
    return bool(query._jsq.awaitTermination(int(seconds * 1000)))


def observed_counters(query: StreamingQuery, names: Sequence[str]) -> dict[str, int]:
    """Counters of the batch that was just computed, which Spark itself reports later."""
    return observed_by(_execution(query), names) if names else {}


def dropped_rows(query: StreamingQuery) -> int:
    """The rows of the last batch that Spark dropped because of its watermark."""
    return sum(_dropped(node) for _, node in _nodes(query))


def _execution(query: StreamingQuery) -> Any:
    """The execution of the batch that a query has just computed, or is about to commit."""
    return query._jsq.streamingQuery().lastExecution()


def _nodes(query: StreamingQuery) -> Iterator[tuple[str, Any]]:
    """The operators of the last batch's plan from sink to source, each with its class name."""
    plan = _execution(query).executedPlan()
    number = 0
    while (node := plan.apply(number)) is not None:
        yield str(node.getClass().getSimpleName()), node
        number += 1


def _metric(node: Any, name: str) -> int:
    """A metric of an operator; 0 if it has none of that name."""
    found = node.metrics().get(name)
    return int(found.get().value()) if found.isDefined() else 0


def _dropped(node: Any) -> int:
    return _metric(node, _DROPPED)
