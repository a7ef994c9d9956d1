"""One Spark session for all tests of a process: starting it takes longer than most of them.

Quick tests run without generated code, which takes longer to compile than their few rows take.
Slow tests run with it, as long runs of users do.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.runtime.session import SparkSettings, spark_session
from headrace.servers.java import jars

_ROOT = Path(__file__).parents[1]

_generated = False


def shared() -> SparkSession:
    """The session, which can also read Kafka. It ends with the process."""
    spark = _session()
    spark.conf.set("spark.sql.codegen.wholeStage", str(_generated).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if _generated else "NO_CODEGEN")
    return spark


@functools.cache
def _session() -> SparkSession:
    # Spark's Pythons import from the folder in which Java starts, and this test may have another.
    with contextlib.chdir(_ROOT):
        return spark_session(
            SparkSettings(shuffle_partitions=2, brief=True), jars=jars("spark-kafka")
        )


def reconnect() -> None:
    """Drop this thread's connection to Java: a timeout may have left an answer unread on it."""
    if _session.cache_info().currsize:
        gateway = _session().sparkContext._gateway
        assert gateway is not None
        if (connection := gateway._gateway_client.get_thread_connection()) is not None:
            connection.close()


def generate_code(wanted: bool) -> None:
    """Turn generated code on or off for pipelines that start from now on."""
    global _generated
    _generated = wanted


def said() -> Path:
    """The file with Spark's output."""
    java = shared().sparkContext._jvm
    assert java is not None
    return Path(java.System.getProperty("headrace.spark.log"))


def shuffling(partitions: int) -> SparkSession:
    """The session, with this many state partitions for pipelines that start from now on."""
    spark = shared()
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return spark
