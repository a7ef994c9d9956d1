"""One Spark session for all tests of a process: starting it takes longer than most of them."""

from __future__ import annotations

import functools
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.runtime.session import SparkSettings, spark_session
from headrace.servers.java import jars


@functools.cache
def shared() -> SparkSession:
    """The session, which can read Kafka too. It ends with the process."""
    return spark_session(SparkSettings(shuffle_partitions=2, brief=True), jars=jars("spark-kafka"))


def said() -> Path:
    """The file that all goes to that Spark says."""
    java = shared().sparkContext._jvm
    assert java is not None
    return Path(java.System.getProperty("headrace.spark.log"))


def shuffling(partitions: int) -> SparkSession:
    """The session, with so many partitions for state in pipelines that start from now on."""
    spark = shared()
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return spark
