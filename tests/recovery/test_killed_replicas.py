"""Between a database and its stores, everything is killed: afterwards verification finds nothing.

Captures, pipelines, the captured server and the servers of the stores, beside a random load.
"""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.application.run import Run
from headrace.application.verify.sources import Captured
from headrace.application.verify.verify import Verification
from headrace.cdc import run
from headrace.log import Log, open_log
from tests.recovery import mariadb_load, postgres_load, sqlite_load
from tests.recovery.capturing_process import Capturing, limits_of, source_of
from tests.recovery.loading import Loading
from tests.recovery.replicating import Places, Replicating, declare
from tests.seed import SEED
from tests.servers.mariadb import Mariadb
from tests.servers.opensearch import OpenSearch
from tests.servers.postgresql import Postgresql
from tests.servers.redis import Redis
from tests.servers.server import Server
from tests.spark import shared


@dataclass(frozen=True)
class Kills:
    """How often each is killed, in so many runs of the capture."""

    captures: int
    pipelines: int
    servers: int


@dataclass(frozen=True)
class Source:
    """A captured database with a load."""

    kind: str
    address: str
    schema: str
    load: Loading
    server: Server | None = None


@contextlib.contextmanager
def source(kind: str, folder: Path) -> Iterator[Source]:
    seed = SEED or 0
    if kind == "sqlite":
        path = folder / "shop.db"
        yield Source(kind, str(path), "main", sqlite_load.Load(path, seed))
    elif kind == "postgresql":
        with Postgresql.running() as server, server.database() as database:
            database.execute(*postgres_load.TABLES)
            yield Source(kind, database.url, "public", postgres_load.Load(database, seed), server)
    else:
        with Mariadb.running() as other, other.database() as made:
            made.execute(*mariadb_load.TABLES)
            yield Source(kind, made.url, made.name, mariadb_load.Load(made, seed), other)


pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(3600)]

FEW_OR_MANY = pytest.mark.parametrize(
    "kills", [Kills(3, 1, 1), Kills(30, 10, 5)], ids=["few", "many"]
)


@FEW_OR_MANY
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_every_store_has_the_rows_of_the_database_whatever_is_killed(
    tmp_path: Path, kind: str, kills: Kills
) -> None:
    kill_and_compare(tmp_path, kind, kills)


@FEW_OR_MANY
def test_opensearch_has_the_rows_of_the_database_whatever_is_killed(
    tmp_path: Path, kills: Kills
) -> None:
    with OpenSearch.running() as index:
        kill_and_compare(tmp_path, "sqlite", kills, index)


def kill_and_compare(
    tmp_path: Path, kind: str, kills: Kills, index: OpenSearch | None = None
) -> None:
    folder, chance = tmp_path / "log", random.Random(SEED or 0)
    with contextlib.ExitStack() as stack:
        shop = stack.enter_context(source(kind, tmp_path))
        keeper = stack.enter_context(Postgresql.running())
        cache = stack.enter_context(Redis.running())
        rows = stack.enter_context(keeper.database())
        places = Places(
            kind,
            shop.schema,
            rows.url,
            cache.url,
            str(tmp_path / "delta"),
            "" if index is None else index.url,
        )
        running = (shop.server, keeper, cache, index)
        servers = [server for server in running if server is not None]
        kill_all(shop, places, servers, folder, kills, chance)
        with open_log(f"file:{folder}") as log:
            catch_up(shop, places, log)
            check_stores(shop, places, log)
            check_transactions(shop, log)


def kill_all(
    shop: Source,
    places: Places,
    servers: list[Server],
    folder: Path,
    kills: Kills,
    chance: random.Random,
) -> None:
    shop.load.run(50)
    rounds = range(kills.captures)
    fatal = {id(server): set(chance.sample(rounds, kills.servers)) for server in servers}
    last = set(chance.sample(rounds, kills.pipelines))
    pipeline: Replicating | None = None
    for number in rounds:
        capturing = Capturing(shop.kind, shop.address, folder)
        shop.load.start(60)
        capturing.wait(1 + chance.randrange(12), shop.load)
        pipeline = pipeline or Replicating(places, folder)
        for server in servers:
            if number in fatal[id(server)]:
                server.kill()
                server.start()
        if number in last:
            shop.load.join()
            shop.load.start(60)  # a pipeline without changes reaches no points
            pipeline.wait(pipeline.points + chance.randrange(1, 8))
            pipeline.kill()
            pipeline = None
        capturing.kill()
        shop.load.join()
    if pipeline is not None:
        pipeline.kill()


def catch_up(shop: Source, places: Places, log: Log) -> None:
    with source_of(shop.kind, shop.address) as captured:
        run(captured, log, "shop", limits=limits_of(shop.kind), until_caught_up=True)
    with Run(declare(places), log, until_caught_up=True, spark=shared()) as running:
        running.wait()


def check_stores(shop: Source, places: Places, log: Log) -> None:
    """The database, its topics, the views and all stores have the same rows."""
    app = declare(places)

    def captured_by(log: Log, topic: str) -> Captured:
        opened = partial(source_of, shop.kind, shop.address)
        return Captured("shop", shop.kind, opened, lambda table, clock: None)

    with Verification(app, log, spark=shared(), captured=captured_by) as verification:
        for name, view in app.views.items():
            found = verification.verify(name)
            assert len(found.hops) == 2 + len(view.stores)
            for hop in found.hops:
                assert hop.proven, (name, hop)
            assert found.hops[0].rows == found.hops[-1].rows_other


def check_transactions(shop: Source, log: Log) -> None:
    """No transaction of the database spans two commits, unless it has numbered parts."""
    commits: dict[Any, set[int | None]] = defaultdict(set)
    for table in ("orders", "lines"):
        for batch in log.read(f"shop.{shop.schema}.{table}"):
            for record in batch.records():
                change: dict[str, Any] = record.value or {"source": {"tx": None}}
                number = change["source"]["tx"]
                if number is not None and shop.kind == "sqlite":
                    # SQLite does not number transactions: the load does, in its rows.
                    number = (change["after"] or {"tx": None})["tx"]
                if number is not None and change["source"]["part"] is None:
                    commits[number].add(record.commit)
    assert len(commits) > 20
    assert {number for number, found in commits.items() if len(found) > 1} == set()
