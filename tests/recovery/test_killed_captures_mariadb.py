"""A captured MariaDB: whatever is killed, the topics fold to the tables, by whole transactions."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.cdc import run
from tests.conformance.sources.mariadb import MariadbStage
from tests.recovery.capturing_process import LIMITS, Capturing
from tests.recovery.mariadb_load import TABLES, Load
from tests.seed import SEED
from tests.servers.mariadb import Database, Mariadb

pytestmark = pytest.mark.service

_CAPTURED = ("orders", "`lines`", "ledger")


@pytest.fixture
def database() -> Iterator[Database]:
    with Mariadb.running() as server, server.database() as database:
        database.execute(*TABLES)
        yield database


@pytest.mark.slow
@pytest.mark.parametrize(("captures", "servers"), [(2, 1), (30, 5)])
@pytest.mark.timeout(1800)
def test_topics_fold_to_the_tables_whatever_is_killed(
    tmp_path: Path, database: Database, captures: int, servers: int
) -> None:
    load, chance = Load(database, SEED or 0), random.Random(SEED or 0)
    load.run(50)
    fatal = set(chance.sample(range(captures), servers))
    for number in range(captures):
        capturing = Capturing("mariadb", database.url, tmp_path / "log")
        load.start(80)
        capturing.wait(1 + chance.randrange(12), load)
        if number in fatal:
            database.server.kill()
            database.server.start()
            capturing.wait(capturing.steps + 1, load)
        capturing.kill()
        load.join()
    with closing(MariadbStage(tmp_path, database)) as stage:
        with stage.source() as source:
            run(source, stage.log, "shop", limits=LIMITS, until_caught_up=True)
        for table in _CAPTURED:
            found = sorted(stage.folded(table.strip("`")), key=repr)
            assert found == sorted(stage.rows(table), key=repr), table
        _check_transactions(stage)


def _check_transactions(stage: MariadbStage) -> None:
    """Each transaction is one commit or numbered parts, with all its changes once and in order."""
    commits: dict[str, set[int]] = defaultdict(set)
    parts: dict[str, set[tuple[int, bool]]] = defaultdict(set)
    orders: dict[str, list[int]] = defaultdict(list)
    counted: dict[str, int] = {}
    for table in _CAPTURED:
        for change in stage.changes(table.strip("`")):
            source: dict[str, Any] = change["source"]
            if source["snapshot"] is not None:
                continue
            if source["part"] is None:
                commits[source["tx"]].add(change["commit"])
            else:
                parts[source["tx"]].add((source["part"], source["last_part"]))
            orders[source["tx"]].append(source["order"])
            if table == "ledger" and change["op"] == "c":
                counted[source["tx"]] = change["after"]["changes"]
    assert len(counted) > 20 and parts
    assert [tx for tx, found in commits.items() if len(found) > 1] == []
    assert commits.keys() & parts.keys() == set()
    for found in parts.values():
        assert [part for part, _ in sorted(found)] == list(range(1, len(found) + 1))
        assert [last for _, last in sorted(found)] == [False] * (len(found) - 1) + [True]
    for tx, count in counted.items():
        assert sorted(orders[tx]) == list(range(1, count + 2)), tx
