"""kill -9 of a process that captures a database, while an application writes to it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from headrace.cdc import run
from headrace.cdc.capture import POINTS
from headrace.errors import SourceGap
from headrace.log import open_log
from tests.recovery.capturing import main
from tests.recovery.early import capture_early, early_source
from tests.waiting import left, started

TABLES = ("orders", "lines")


class Application:
    """Transactions over two tables, one after the other, until it is stopped."""

    def __init__(self, path: Path, seed: int) -> None:
        self._random = random.Random(seed)
        self._db = apsw.Connection(str(path))
        self._db.set_busy_timeout(60_000)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        for table in TABLES:
            self._db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, tx INT, note TEXT)")

    def write(self) -> None:
        """Write one transaction, or roll it back. Every row of it has the same number."""
        chosen = self._random
        self._db.execute("BEGIN IMMEDIATE")
        number = chosen.randrange(1 << 40)
        for _ in range(chosen.choice([1, 3, 10])):
            table, key = chosen.choice(TABLES), chosen.randrange(300)
            what = chosen.random()
            if what < 0.6:
                sql = f"INSERT OR REPLACE INTO {table} VALUES (?2, ?1, 'new')"
            elif what < 0.8:
                sql = f"UPDATE OR REPLACE {table} SET id = ?2 + 1, tx = ?1 WHERE id = ?2"
            elif what < 0.9:
                sql = f"UPDATE {table} SET note = note || 'x', tx = ?1 WHERE id < ?2 / 30"
            else:
                sql = f"DELETE FROM {table} WHERE id = ?2 AND tx != ?1"
            self._db.execute(sql, (number, key))
        self._db.execute("ROLLBACK" if chosen.random() < 0.1 else "COMMIT")

    def __enter__(self) -> Application:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def rows(self, table: str) -> dict[int, Any]:
        return {int(str(row[0])): row for row in self._db.execute(f"SELECT * FROM {table}")}

    def close(self) -> None:
        self._db.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.write()
            self._stop.wait(0.05)


def check(folder: Path, rows: dict[str, dict[int, Any]]) -> int:
    """Each topic folds to its table, nothing is repeated, and no transaction is divided.

    Returns the number of transactions that were written whole.
    """
    commits: dict[int, set[int | None]] = {}
    places: Counter[Any] = Counter()
    with open_log(f"file:{folder / 'log'}") as log:
        for table, expected in rows.items():
            found: dict[int, Any] = {}
            for batch in log.read(f"shop.main.{table}"):
                for record in batch.records():
                    if record.value is None:
                        continue
                    change, source = record.value, record.value["source"]
                    row = change["after"] or change["before"]
                    if row["id"] in found and change["op"] in "ud":
                        assert change["before"] == found[row["id"]]
                    found[row["id"]] = change["after"]
                    if source["tx"] is not None:
                        places[source["tx"], source["order"]] += 1
                    if change["op"] in "cu" and source["part"] is None:
                        commits.setdefault(row["tx"], set()).add(record.commit)
            there = {key: tuple(row.values()) for key, row in found.items() if row is not None}
            assert there == expected
    assert set(places.values()) == {1}
    assert all(len(numbers) == 1 for numbers in commits.values())
    return len(commits)


def capture(folder: Path, point: str, nth: int) -> int:
    """Run the capture in a process until it has killed itself. Returns how it ended."""
    arguments = [sys.executable, "-m", "tests.recovery.capturing", str(folder), point, str(nth)]
    return started(subprocess.Popen(arguments, process_group=0)).wait(left())


def killed(folder: Path, kills: int) -> None:
    application = Application(folder / "shop.db", kills)
    for _ in range(10):
        application.write()
    chosen = random.Random(kills)
    with application:
        for number in range(kills):
            point = POINTS[number % len(POINTS)]
            nth = 1 if point == "chunk" else chosen.randrange(1, 6)
            if number >= len(POINTS) and point == "chunk":
                point = "read"  # the snapshots are complete
            assert capture(folder, point, nth) == -signal.SIGKILL
    main(folder, "", 0)
    assert check(folder, {table: application.rows(table) for table in TABLES}) > 5
    application.close()


def test_a_capture_that_is_killed_loses_and_repeats_nothing(tmp_path: Path) -> None:
    killed(tmp_path, 3)


def test_a_capture_that_acknowledges_before_its_commit_loses_a_row(tmp_path: Path) -> None:
    application = Application(tmp_path / "shop.db", 0)
    application.write()
    main(tmp_path, "", 0)
    database = str(tmp_path / "shop.db")
    with apsw.Connection(database) as db:
        db.execute("INSERT INTO orders VALUES (1000, 1, 'lost')")
    capture_early("sqlite", database, tmp_path / "log")
    with pytest.raises(SourceGap, match="were not captured"):
        main(tmp_path, "", 0)
    application.write()
    with open_log(f"file:{tmp_path / 'log'}") as log, early_source("sqlite", database) as source:
        run(source, log, "shop", until_caught_up=True)
    with pytest.raises(AssertionError, match="1000"):
        check(tmp_path, {table: application.rows(table) for table in TABLES})
    application.close()


@pytest.mark.slow
def test_a_capture_that_is_killed_thirty_times_loses_and_repeats_nothing(tmp_path: Path) -> None:
    killed(tmp_path, 30)
