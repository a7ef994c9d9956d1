"""kill -9 of a process that joins tables, at every point of a round and at any moment between."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from headrace.testing import Results, scripted_log
from tests.recovery.order_tables import NOW, Feed, create_topics, declare, feed, judge
from tests.recovery.victim import Victim
from tests.spark import shuffling


def recount(results: Results) -> None:
    """Compare the view with DuckDB, which has only the records and the rule, not headrace."""
    late = NOW.replace(hour=NOW.hour + 1)
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for topic, column in (("orders", "product"), ("products", "name")):
            rows = []
            for batch in results.log.read(topic):
                for r in batch.records():
                    before = results.log.frontier(topic, (r.commit or 0) - 1) if r.commit else None
                    place = (r.commit, r.partition, r.offset)
                    if r.value is None:
                        rows.append((r.key, None, True, before or 0, *place))
                    elif r.value["at"] is not None and r.value["at"] <= late:
                        valid = int(r.value["at"].timestamp() * 1_000_000)
                        rows.append((r.value["id"], r.value[column], False, valid, *place))
            db.execute(
                f"CREATE TABLE {topic} (id TEXT, {column} TEXT, gone BOOLEAN, valid BIGINT, "
                "number BIGINT, part BIGINT, place BIGINT)"
            )
            db.executemany(f"INSERT INTO {topic} VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            db.execute(
                f"CREATE VIEW {topic}_now AS SELECT * FROM {topic} QUALIFY row_number() OVER "
                "(PARTITION BY id ORDER BY valid DESC, number DESC, part DESC, place DESC) = 1"
            )
        counted = db.execute(
            "SELECT o.id, o.product, CASE WHEN NOT p.gone THEN p.name END FROM orders_now o "
            "LEFT JOIN products_now p ON p.id = o.product WHERE NOT o.gone ORDER BY ALL"
        ).fetchall()
    view = [(row["id"], row["product"], row["p_name"]) for row in results.view("priced")]
    assert sorted(view, key=lambda row: row[0]) == counted


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tables_killed_at_every_point_are_joined_as_if_nothing_had_happened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "log"
    with scripted_log(folder, start=NOW) as log:
        create_topics(log)
        source = Feed(4)
        victim = Victim(folder, "tables", 4, lambda batches: feed(log, source, 3 * batches))
        victim.kill_everywhere(more=5)
        found = []
        for name in ("killed", "spared"):
            results = log.run(declare(name)[0], spark=shuffling(1))
            found.append(judge(name, results))
            recount(results)
    assert found[0] == found[1]
    with capsys.disabled():
        print(f"\n  {victim}")
