"""A captured PostgreSQL: whatever is killed, the topics fold to the tables, transaction by
transaction."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.cdc import run
from headrace.errors import SourceGap
from tests.conformance.sources.postgres import PostgresStage
from tests.recovery.capturing_process import LIMITS, Capturing
from tests.recovery.early import capture_early, early_source
from tests.recovery.postgres_load import TABLES, Load
from tests.seed import SEED
from tests.servers.postgresql import Database, Postgresql

pytestmark = pytest.mark.service


@pytest.fixture
def database() -> Iterator[Database]:
    with Postgresql.running() as server, server.database() as database:
        database.execute(*TABLES)
        yield database


@pytest.mark.parametrize(
    ("captures", "servers"), [(2, 1), pytest.param(30, 5, marks=pytest.mark.slow)]
)
def test_topics_fold_to_the_tables_whatever_is_killed(
    tmp_path: Path, database: Database, captures: int, servers: int
) -> None:
    load, chance = Load(database, SEED or 0), random.Random(SEED or 0)
    load.run(50)
    fatal = set(chance.sample(range(captures), servers))
    for number in range(captures):
        capturing = Capturing("postgresql", database.url, tmp_path / "log")
        load.start(80)
        capturing.wait(1 + chance.randrange(12), load)
        if number in fatal:
            database.server.kill()
            database.server.start()
            capturing.wait(capturing.steps + 1, load)
        capturing.kill()
        load.join()
    with closing(PostgresStage(tmp_path, database)) as stage:
        for transactions in (40, 0):
            with stage.source() as source:
                run(source, stage.log, "shop", limits=LIMITS, until_caught_up=True)
            load.run(transactions)
        _check(stage)


def test_a_capture_that_acknowledges_before_its_commit_loses_a_row(
    tmp_path: Path, database: Database
) -> None:
    load = Load(database, SEED or 0)
    load.run(50)
    with closing(PostgresStage(tmp_path, database)) as stage:
        stage.capture(limits=LIMITS)
        load.run(40)
        stage.capture(limits=LIMITS)
        _check(stage)
        stage.execute("INSERT INTO ledger VALUES (-1, NULL)")
        capture_early("postgresql", database.url, tmp_path / "log")
        with pytest.raises(SourceGap, match="were not captured"):
            stage.capture(limits=LIMITS)
        load.run(40)
        with early_source("postgresql", database.url) as source:
            run(source, stage.log, "shop", limits=LIMITS, until_caught_up=True)
        with pytest.raises(AssertionError, match=r"'tx': -1"):
            _check(stage)


def _check(stage: PostgresStage) -> None:
    for table in ("orders", "lines", "ledger"):
        found = sorted(stage.folded(table), key=repr)
        assert found == sorted(stage.rows(table), key=repr), table
    commits: dict[str, set[int]] = defaultdict(set)
    parts: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    changes: dict[str, list[int]] = defaultdict(list)
    ledger: dict[str, tuple[int | None, int]] = {}
    snapshots = 0
    for table in ("orders", "lines", "ledger"):
        for change in stage.changes(table):
            source: dict[str, Any] = change["source"]
            if source["snapshot"] is not None:
                snapshots = max(snapshots, change["commit"])
                continue
            if source["part"] is None:
                commits[source["tx"]].add(change["commit"])
            else:
                parts[source["tx"]].append((source["part"], source["last_part"]))
            changes[source["tx"]].append(source["order"])
            if table == "ledger":
                ledger[source["tx"]] = change["after"]["changes"], change["commit"]
    assert commits and ledger
    assert {tx for tx, found in commits.items() if len(found) > 1} == set()
    # Whole and in parts at once is no transaction.
    assert commits.keys() & parts.keys() == set()
    for numbered in parts.values():
        numbers = sorted(set(numbered))
        assert [number for number, _ in numbers] == list(range(1, len(numbers) + 1))
        assert [last for _, last in numbers] == [False] * (len(numbers) - 1) + [True]
    # Nothing of a transaction is missing, and nothing of it is there twice. While a snapshot runs,
    # it brings rows that a transaction has changed without sending all their values.
    counted = {tx: count for tx, (count, commit) in ledger.items() if commit > snapshots}
    assert counted
    for tx, count in counted.items():
        if count is not None:
            assert sorted(changes[tx]) == list(range(1, count + 2)), tx
