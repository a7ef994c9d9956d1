"""Make the class archives that let Java start faster: `python -m headrace.application.warm`.

A short run that loads the classes makes each of them once. An archive that cannot be made is not an
error: Java then starts as slowly as before. With `spark`, only that of Spark is made, at the lowest
priority.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta

import headrace as hr
from headrace.application.run import Run
from headrace.errors import HeadraceError
from headrace.log import open_log
from headrace.runtime.session import SparkSettings, spark_class_path, spark_session
from headrace.servers.java import archive, class_path
from headrace.servers.kafka import Cluster

_TRAIN = "train"
_SPARK_ALONE = "spark"
_QUIET = "-Xlog:cds*=off"


def warm_spark() -> None:
    """Make the archive of Spark's classes, in a separate process."""
    with archive.making("spark", spark_class_path()) as option:
        if option is not None:
            subprocess.run(
                [sys.executable, "-m", "headrace.application.warm", _TRAIN],
                env={**os.environ, "SPARK_SUBMIT_OPTS": f'"{option}" {_QUIET}'},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )


def warm_kafka() -> None:
    """Make the archive of a broker's classes."""
    with archive.making("kafka", class_path("kafka")) as option:
        if option is not None:
            before = os.environ.get("JDK_JAVA_OPTIONS")
            os.environ["JDK_JAVA_OPTIONS"] = f'"{option}" {_QUIET}'
            try:
                with tempfile.TemporaryDirectory() as folder:
                    cluster = Cluster(folder, brief=True)
                    cluster.up(1, 0)
                    cluster.down()
            finally:
                if before is None:
                    del os.environ["JDK_JAVA_OPTIONS"]
                else:
                    os.environ["JDK_JAVA_OPTIONS"] = before


def _train() -> None:
    """Run a pipeline with state, and return when Java has ended."""
    app, now = hr.App("warm"), datetime(2026, 1, 1, tzinfo=UTC)
    orders = app.topic("orders", schema="item string, at timestamp", key="item", event_time="at")
    minute = timedelta(minutes=1)
    sold = hr.aggregate(
        orders, by="item", window=hr.tumbling(minute), lateness=hr.Lateness(minute, minute),
        sold=hr.count(),
    )  # fmt: skip
    app.view("sold", sold)
    app.publish("late", sold.late)
    spark = spark_session(SparkSettings(shuffle_partitions=2, brief=True))
    with tempfile.TemporaryDirectory() as folder, open_log(f"file:{folder}/log") as log:
        log.ensure_topic(orders.topic)
        with log.producer() as producer:
            producer.send("orders", {"item": "pen", "at": now})
        with Run(app, log, until_caught_up=True, spark=spark) as running:
            running.wait()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait()


def main() -> None:
    if sys.argv[1:] == [_TRAIN]:
        _train()
        return
    in_background = sys.argv[1:] == [_SPARK_ALONE]
    if in_background:
        os.nice(19)
    for warm in (warm_spark,) if in_background else (warm_spark, warm_kafka):
        try:
            warm()
        except (HeadraceError, OSError, subprocess.CalledProcessError) as error:
            print(f"warm: no class archive, so Java starts slower: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
