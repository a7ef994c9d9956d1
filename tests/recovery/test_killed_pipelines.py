"""kill -9 of running pipelines, at every point of a batch and at any moment between."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from headrace.testing import Results, ScriptedLog, scripted_log
from tests.recovery.pipeline import (
    LATENESS,
    NOW,
    TOPIC,
    Feed,
    Which,
    create_topic,
    declare,
    everything,
    feed,
    judge,
)
from tests.recovery.victim import Cluster, Victim
from tests.spark import shuffling


def victim_of(
    log: ScriptedLog, folder: Path, seed: int, which: Which = "grid", cluster: Cluster | None = None
) -> Victim:
    source = Feed(seed)
    return Victim(folder, which, seed, lambda batches: feed(log, source, 3 * batches), cluster)


def check(log: ScriptedLog, which: Which = "grid") -> None:
    """Check that it continues to the end, with the results of a pipeline that was never killed."""
    found = []
    for name in ("killed", "spared"):
        app, steps = declare(name, which)
        results = log.run(app, spark=shuffling(2))
        judge(app, steps, results)
        found.append(everything(app, results))
        if which == "grid":
            recount(results)
    assert found[0] == found[1]


def recount(results: Results) -> None:
    """Compare the tumbling view with DuckDB, which has only the rows and the rule, not headrace."""
    rows = [
        (record.commit, record.value["shop"], record.value["item"], record.value["price"], at)
        for batch in results.log.read(TOPIC)
        for record in batch.records()
        if (at := record.value["at"]) is not None and at <= NOW.replace(hour=NOW.hour + 1)
    ]
    wait = int((LATENESS.delay + LATENESS.grace).total_seconds())
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute(
            "CREATE TABLE r (number BIGINT, shop TEXT, item TEXT, price DECIMAL(10,2), "
            "moment TIMESTAMPTZ)"
        )
        db.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?)", rows)
        counted = db.execute(
            f"""
            WITH commits AS (SELECT number, max(moment) AS newest FROM r GROUP BY number),
            frontiers AS (
                SELECT number, max(newest) OVER (
                    ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS frontier
                FROM commits)
            SELECT shop, strftime(time_bucket(INTERVAL 1 MINUTE, moment), '%Y-%m-%d %H:%M:%S') AS w,
                count(*), sum(price)
            FROM r JOIN frontiers USING (number)
            WHERE item != 'gift' AND (frontier IS NULL OR
                time_bucket(INTERVAL 1 MINUTE, moment) + INTERVAL 1 MINUTE
                    + INTERVAL {wait} SECOND > frontier)
            GROUP BY ALL ORDER BY ALL
            """
        ).fetchall()
    view = sorted(
        (row["shop"], row["window_start"], row["orders"], row["revenue"])
        for row in results.view("sales")
    )
    assert view == [(shop, start, n, str(total)) for shop, start, n, total in counted]


@pytest.mark.timeout(900)
def test_a_killed_pipeline_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with scripted_log(folder, start=NOW) as log:
        create_topic(log)
        victim = victim_of(log, folder, seed=1)
        victim.kill_at("stored panes", 2)
        check(log)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "seed", "times", "more"),
    [
        ("grid", 2, 2, 10),
        ("own", 3, 2, 4),
        ("state", 4, 2, 4),
        ("distinct", 4, 1, 4),
        ("alerts", 5, 1, 4),
    ],
)
def test_pipelines_killed_at_every_point_many_times(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    which: Which,
    seed: int,
    times: int,
    more: int,
) -> None:
    folder = tmp_path / "log"
    with scripted_log(folder, start=NOW) as log:
        create_topic(log)
        victim = victim_of(log, folder, seed, which)
        victim.kill_everywhere(times=times, more=more)
        check(log, which)
    with capsys.disabled():
        print(f"\n  {victim}")
