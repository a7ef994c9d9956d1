"""A log with page views and the results of a pipeline, and a stand-in for `headrace run`.

The results are stored by the real sink, from the oracle's batches: no Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa

import headrace as hr
from headrace.log import Log
from headrace.plan.steps import steps_of
from headrace.store.location import database_of
from headrace.studio.settings import StudioSettings
from tests.property.sinking import sink_all

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
APP = "pageviews"
VIEW = "hits_per_minute"
TOKEN = {"authorization": "Bearer t"}

RUNNER = """
import fcntl, json, os, pathlib, signal, sys, time
verb, reference, *rest = sys.argv[1:]
folder = pathlib.Path(os.environ["HEADRACE_LOG"].removeprefix("file:")) / "apps" / "pageviews"
print("Starting Spark to run 'pageviews' ...", file=sys.stderr, flush=True)
if (folder / "fails").exists():
    print("error: Java was not found\\n  \\u2192 Install it", file=sys.stderr, flush=True)
    sys.exit(2)
folder.mkdir(parents=True, exist_ok=True)
if verb == "rebuild":
    print("hits_per_minute  40 rows, 20 rows/s", file=sys.stderr, flush=True)
    while not (folder / "built").exists():
        time.sleep(0.02)
    row = {"hits": 3}
    change = {"change": "changed", "key": {"url": "/<b>"}, "before": row, "after": {"hits": 4}}
    print(json.dumps(change))
    totals = {"added": 0, "removed": 0, "changed": 1, "same": 5, "lost": 0}
    print(json.dumps({"view": rest[0], **totals, "switched": "--yes" in rest}))
    sys.exit(0)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with (folder / "run.lock").open("a+") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    time.sleep(600)
"""
"""It holds the lock of a run until it is stopped, or fails as `headrace run` does; a rebuild ends
when the file `built` is there, with differences as `headrace rebuild` prints them."""


def pageviews() -> hr.App:
    """The pipeline of the demo, without estimates."""
    app = hr.App(APP)
    views = app.topic(
        "pageviews", schema="url string, user string, at timestamp", key="url", event_time="at"
    )
    per_minute = hr.aggregate(
        views,
        by="url",
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(delay=timedelta(seconds=10), grace=timedelta(minutes=5)),
        hits=hr.count(),
    )
    app.view(VIEW, per_minute, key=["url", "window_start"])
    app.publish("pageviews.late", per_minute.late)
    return app


def visits(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Page views in order, two a second."""
    return [
        {"url": f"/{n % 3}", "user": f"u{n % 7}", "at": NOON + timedelta(seconds=n / 2)}
        for n in range(start, start + count)
    ]


def write(log: Log, rows: Sequence[Mapping[str, Any]], topic: str = "pageviews") -> None:
    """Write rows in commits of 40."""
    log.ensure_topic(pageviews().topics["pageviews"])
    with log.producer() as producer:
        for first in range(0, len(rows), 40):
            with producer.transaction() as transaction:
                for row in rows[first : first + 40]:
                    transaction.send(topic, dict(row))


def process(log: Log) -> None:
    """Store the results of what is in the log."""
    (step,) = steps_of(pageviews())
    types = {"url": pa.string(), "hits": pa.int64()}
    sink_all(log, step, types, max_commits=2)
    # A run counts the rows that it reads, which these batches do not.
    for table in ("step", "law"):
        tamper(
            log,
            f"UPDATE _headrace_{table} "
            "SET law = json_set(law, '$.rows', json_extract(law, '$.counted'))",
        )


def tamper(log: Log, sql: str) -> None:
    """Change the database of views behind everybody's back."""
    db = apsw.Connection(str(database_of(log.url, APP)))
    db.execute(sql)
    db.close()


def settings_of(
    log: Log, folder: Path, *, named: bool = True, read_only: bool = False
) -> StudioSettings:
    """The settings of a studio of a log, which starts the stand-in."""
    runner = folder / "runner.py"
    runner.write_text(RUNNER)
    return StudioSettings(
        log=log.url,
        apps=("pipelines.pageviews:app",) if named else (),
        read_only=read_only,
        token="t",
        declared={APP: pageviews()} if named else {},
        program=(sys.executable, str(runner)),
    )
