"""Capturing changes against Debezium's engine, COPY, and a table without triggers.

`rate`: changes of PostgreSQL into the log, with envelope, `before` and commits, of a table with the
default replica identity, in transactions of 1, 10 and 1,000 rows: half of them updates, the rest
inserts and deletes. All are in the slot before either side begins. The baseline is Debezium's
engine with a handler that only counts. The start of Java and its first batch are left out; ours is
counted whole. `processor`: the processor's time of each of these changes, without the server's. On
a busy machine it is the fair one: the engine's many threads get more of a processor than our one.
`snapshot`: rows of a table into the log, against `COPY ... TO STDOUT` into nothing.
`trigger overhead`: transactions of SQLite on a table that is captured and on one that is not.
`verify`: a table of SQLite is compared with its topic, whole, against reading both once; and after
100 changes, against the whole.

`lag`: see `bench/cdc_lag.py`, which `headrace bench cdc-lag` runs alone.

A server of PostgreSQL comes from Debian's packages (`make services`), with fsync off.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from bench import cdc_lag
from bench.baselines import debezium
from bench.measure import Progress, Result, best_of, cost, rate, report, seconds
from headrace.application.verify.sources import Captured, SourceHop
from headrace.application.verify.verify import Verification
from headrace.cdc import run as capture
from headrace.cdc.postgres.source import PostgresSource
from headrace.cdc.sqlite import SqliteSource
from headrace.clock import SystemClock
from headrace.log import Log, open_log
from headrace.pipeline.app import App
from headrace.servers.java.ports import HOST
from tests.servers.postgresql import ADMIN, Database, Postgresql

PARTS = ("rate", "snapshot", "trigger overhead", "verify", "lag")
SIZES = (1, 10, 1_000)

_TABLE = """
    CREATE TABLE accounts (
        id bigint PRIMARY KEY, owner text NOT NULL, balance numeric(12,2) NOT NULL,
        opened timestamptz NOT NULL, note text)"""
_FILL = """
    INSERT INTO accounts SELECT i, 'owner ' || i, i * 1.25, now(), 'a note of some length ' || i
    FROM generate_series(1, {rows}) i"""
# In each transaction: an update, an insert, an update, a delete, and so on.
_WRITES = """
    CREATE PROCEDURE writes(transactions int, size int) LANGUAGE plpgsql AS $$
    DECLARE n bigint := 0; fresh bigint := 1000000000; gone bigint := 1000000000;
    BEGIN
        FOR t IN 1..transactions LOOP
            FOR i IN 1..size LOOP
                n := n + 1;
                IF n % 4 = 2 THEN
                    fresh := fresh + 1;
                    INSERT INTO accounts VALUES (fresh, 'new ' || fresh, 1.5, now(), 'note');
                ELSIF n % 4 = 0 THEN
                    gone := gone + 1;
                    DELETE FROM accounts WHERE id = gone;
                ELSE
                    UPDATE accounts SET balance = balance + 0.01, note = 'changed ' || n
                    WHERE id = 1 + n % {rows};
                END IF;
            END LOOP;
            COMMIT;
        END LOOP;
    END $$"""


def run(
    *,
    quick: bool = False,
    progress: Progress = lambda _: None,
    parts: Collection[str] = PARTS,
) -> dict[str, Any]:
    """Run the benchmark, or some parts; `quick` takes a tenth of the data, as a smoke test."""
    scale = 10 if quick else 1
    settings: dict[str, Any] = {
        "accounts": 20_000 // scale,
        "changes": 200_000 // scale,
        "changes_alone": 50_000 // scale,
        "snapshot_rows": 1_000_000 // scale,
        "sqlite_writes": 20_000 // scale,
        "verified_rows": 1_000_000 // scale,
        **cdc_lag.settings_of(quick=quick),
    }
    skipped = debezium.missing()
    if skipped is not None:
        progress(f"no baseline: {skipped}")
    settings["debezium"] = skipped or debezium.version()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as made:
        folder = Path(made)
        with Postgresql.running() as server:
            for size in SIZES if "rate" in parts else ():
                progress(f"rate: transactions of {size:,}")
                results += _rate(server, folder / f"rate-{size}", settings, size)
            if "snapshot" in parts:
                progress("snapshot")
                results.append(_snapshot(server, folder / "snapshot", settings["snapshot_rows"]))
        if "trigger overhead" in parts:
            progress("trigger overhead")
            results.append(_triggers(folder, settings["sqlite_writes"]))
        if "verify" in parts:
            progress("verify")
            results += _verify(folder, settings["verified_rows"])
    if "lag" in parts:
        results += cdc_lag.measured(settings, progress)
    return report("cdc", settings, results)


def _rate(server: Postgresql, folder: Path, settings: dict[str, Any], size: int) -> list[Result]:
    changes = settings["changes" if size > 1 else "changes_alone"]
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(server.database())
        rows = settings["accounts"]
        database.execute(_TABLE, _FILL.format(rows=rows), _WRITES.format(rows=rows))
        log = stack.enter_context(open_log(f"file:{folder}"))
        with PostgresSource(database.url, ["accounts"]) as source:
            capture(source, log, "bench", until_caught_up=True)
        read = log.topic("bench.public.accounts").records
        if settings["debezium"] and debezium.missing() is None:
            database.execute(
                "CREATE PUBLICATION debezium FOR TABLE accounts",
                "SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')",
            )
        database.execute(f"CALL writes({changes // size}, {size})")

        def ours() -> None:
            with PostgresSource(database.url, ["accounts"]) as source:
                capture(source, log, "bench", until_caught_up=True)

        processor = time.process_time()
        spent = seconds(ours)
        processor = (time.process_time() - processor) * 1_000_000 / changes
        # A delete has its tombstone.
        captured = log.topic("bench.public.accounts").records - read
        assert captured == changes + changes // 4, f"{captured} records of {changes} changes"
        name = f"rate, transactions of {size:,}"
        if debezium.missing() is not None:
            return [Result(name, changes / spent, "changes/s", "skipped", 0.0, 0.0)]
        theirs = debezium.drain(
            debezium.properties(HOST, server.port, ADMIN, database.name, "public.accounts"), changes
        )
        label, baseline = "Debezium's engine, counting", theirs.changes / theirs.seconds
        used = theirs.processor * 1_000_000 / theirs.changes
        return [
            Result(name, changes / spent, "changes/s", label, baseline, changes / spent / baseline),
            cost(f"processor, transactions of {size:,}", "us/change", processor, label, used),
        ]


def _snapshot(server: Postgresql, folder: Path, rows: int) -> Result:
    with server.database() as database:
        database.execute(_TABLE, _FILL.format(rows=rows), "VACUUM ANALYZE accounts")
        logs = iter(range(100))

        def ours() -> float:
            with open_log(f"file:{folder / str(next(logs))}") as log:

                def work() -> None:
                    with PostgresSource(database.url, ["accounts"]) as source:
                        capture(source, log, "bench", until_caught_up=True)

                spent = seconds(work)
                assert log.topic("bench.public.accounts").records == rows
            with PostgresSource(database.url, ["accounts"]) as source:
                source.detach()
            return spent

        mine, theirs = best_of(2, ours, lambda: _copied(database))
    return rate("snapshot", "rows/s", rows, mine, "COPY ... TO STDOUT", theirs)


def _copied(database: Database) -> float:
    with (
        contextlib.closing(database.connect()) as connection,
        connection.cursor() as cursor,
        open("/dev/null", "wb") as nothing,
    ):
        return seconds(lambda: cursor.copy_expert("COPY accounts TO STDOUT", nothing))


def _triggers(folder: Path, writes: int) -> Result:
    """The time of an update in a transaction of its own, synced as SQLite does by default."""

    def written(name: str, *, captured: bool) -> float:
        path = folder / f"{name}.db"
        path.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, balance REAL)")
            db.execute("BEGIN")
            db.executemany(
                "INSERT INTO accounts VALUES (?, ?, 0)", ((i, f"owner {i}") for i in range(1_000))
            )
            db.execute("COMMIT")
            if captured:
                with SqliteSource(path) as source:
                    source.attach()

            def work() -> None:
                update = "UPDATE accounts SET balance = balance + 1 WHERE id = ?"
                for i in range(writes):
                    db.execute(update, (i % 1_000,))

            return seconds(work)

    ours, theirs = best_of(
        3, lambda: written("with", captured=True), lambda: written("without", captured=False)
    )
    micros = 1_000_000 / writes
    return cost(
        "trigger overhead",
        "us/write",
        ours * micros,
        "the same table, not captured",
        theirs * micros,
    )


def _verify(folder: Path, rows: int) -> list[Result]:
    path, changes = folder / "verified.db", 100
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, balance REAL, note)")
        values = ((n, f"owner {n}", n * 1.25, f"a note of some length {n}") for n in range(rows))
        db.executemany("INSERT INTO accounts VALUES (?, ?, ?, ?)", values)
    with (
        open_log(f"file:{folder / 'verified'}") as log,
        Verification(App("bench"), log) as verifying,
    ):
        with SqliteSource(path) as source:
            capture(source, log, "bench", until_caught_up=True)
        topic = "bench.main.accounts"
        captured = Captured("bench", "bench", lambda: SqliteSource(path), lambda table, clock: None)
        hop = SourceHop(log, "accounts", topic, captured, SystemClock())
        found = [verifying.compared(hop)]
        whole = seconds(lambda: found.append(verifying.compared(hop)))
        both = seconds(lambda: _read_both(path, log, topic))
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute(f"UPDATE accounts SET note = 'changed' WHERE id % {rows // changes} = 0")
        with SqliteSource(path) as source:
            capture(source, log, "bench", until_caught_up=True)
        last = found[-1]
        after = seconds(lambda: found.append(verifying.compared(hop, last)))
    assert [one.rows for one in found] == [rows, rows, changes]
    assert all(one.proven for one in found)
    return [
        Result("verify, whole", whole, "s", "reading both", both, both / whole),
        Result(f"verify, after {changes} changes", after, "s", "whole", whole, whole / after),
    ]


def _read_both(path: Path, log: Log, topic: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        for _ in db.execute("SELECT * FROM accounts"):
            pass
    for _batch in log.read(topic, columns=["after"]):
        pass
