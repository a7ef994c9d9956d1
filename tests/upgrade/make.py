"""Make the upgrade fixture of the current format: run once, when a release fixes a format.

    PYTHONPATH=src python -m tests.upgrade.make

writes `tests/upgrade/format-N.tar.xz`. In it are `log/`, the folder of an embedded log with an
application that has run, and `contents.json`, what a reader found there. Some rows are unread and
some windows open on purpose, so that the test continues from them. Archives are never made again:
they are the data of an older version.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import tarfile
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.log import Log
from headrace.log.file.catalog import FORMAT
from headrace.runtime.session import SparkSettings, spark_session
from headrace.store import open_views
from headrace.testing import scripted_log
from tests.upgrade.application import APP, NOW, Feed, declare

FOLDER = Path(__file__).parent
GROUP = "readers"
TILL = "till"
SESSION = timedelta(seconds=30)
_LEFT_OUT = ("spark.log", "run.lock", "catalog.db-shm")
"""Folders that every run creates again."""


def batch(sequence: int) -> pa.Table:
    """The idempotent producer's batch with that sequence number."""
    rows = range(3 * sequence, 3 * sequence + 3)
    return pa.table(
        {
            "key": pa.array([b"k%d" % (row % 4) for row in rows], pa.binary()),
            "value": pa.array([b"v%d" % row for row in rows], pa.binary()),
        }
    )


def contents(log: Log) -> dict[str, Any]:
    """Everything that a reader finds: topics and their records, groups and views."""
    topics = {}
    for topic in log.topics():
        state = log.topic(topic.name)
        records = sorted(
            (r.partition, r.offset, r.commit, str(r.timestamp), repr(r.key), repr(r.value),
             repr(r.headers))
            for part in log.read(topic.name) for r in part.records()
        )  # fmt: skip
        topics[topic.name] = {
            "schema": str(topic.schema),
            "key": topic.key,
            "event time": topic.event_time,
            "offsets": [[part.first, part.end] for part in state.partitions],
            "frontier": state.frontier,
            "records": records,
        }
    with open_views(log.home, app=APP) as views:
        kept = {state.name: views.rows(state.name) for state in views.list()}
    groups = {
        name: sorted((lag.topic, lag.partition, lag.committed) for lag in log.group(name).lags)
        for name in log.groups()
    }
    found = {"head": log.head(), "topics": topics, "groups": groups, "views": kept}
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def make(folder: Path) -> None:
    """Make the log, run its application over most of it, and die while a group owns partitions."""
    app, feed = declare(), Feed(seed=17)
    spark = spark_session(SparkSettings(shuffle_partitions=2, brief=True))
    with scripted_log(folder, start=NOW) as log:
        for topic in app.topics.values():
            log.log.ensure_topic(topic)
        for commits in (30, 12):
            feed.commits(log, commits)
            log.run(app, spark=spark, max_commits=20)
        feed.commits(log, 14)
        fill(log.log)
        log.log.consumer("orders", "rates", group=GROUP, session=SESSION).poll()
        spark.stop()
        os._exit(0)


def fill(log: Log) -> None:
    """Add parts outside of the application: a compacted topic, a producer and a group."""
    settings = {"cleanup": "compact", "segment_bytes": "1KiB"}
    log.create_topic("rates", partitions=2, settings=settings)
    with log.producer(id=TILL) as till:
        for sequence in range(6):
            till.append("rates", batch(sequence), sequence=sequence)
        till.send("rates", None, key="k3", headers=[("why", b"gone")])
    log.compact("rates")
    with log.producer(acks="written") as producer, producer.transaction() as transaction:
        transaction.send("rates", "after compaction", key="k1")
    with log.consumer("orders", "rates", group=GROUP, session=SESSION) as consumer:
        consumer.poll(max_records=9)
        consumer.commit()


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        child = multiprocessing.get_context("spawn").Process(target=make, args=(place / "log",))
        child.start()
        child.join()
        if child.exitcode:
            raise SystemExit(child.exitcode)
        shutil.copytree(place / "log", place / "copy")  # opening it would repair it
        with scripted_log(place / "copy", start=NOW) as log:
            (place / "contents.json").write_text(json.dumps(contents(log.log)))
        archive = FOLDER / f"format-{FORMAT}.tar.xz"
        with tarfile.open(archive, "w:xz", preset=9) as tar:
            for name in ("log", "contents.json"):
                tar.add(place / name, name, filter=_kept)
    print(f"{archive}: {archive.stat().st_size:,} bytes")


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """An entry as it is archived, without machine-specific data."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if Path(entry.name).name in _LEFT_OUT else entry


if __name__ == "__main__":
    main()
