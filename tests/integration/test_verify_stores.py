"""Verification finds and mends damage in every store, and names nothing else."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import headrace as hr
from headrace.store.contract import Store
from headrace.store.postgres import Postgres
from headrace.store.redis import Redis
from headrace.store.search import Search
from tests import spark
from tests.servers import postgresql
from tests.servers import redis as redis_server
from tests.shop import ROWS, Shop, key_of, named, opened_shop, product
from tests.waiting import wait_until

Damage = Callable[[Shop], None]


@contextlib.contextmanager
def damaged_search(folder: Path) -> Iterator[tuple[Store, Damage]]:
    def damage(shop: Shop) -> None:
        (path,) = folder.glob("log/stores/shop/products.search.db")
        with contextlib.closing(apsw.Connection(str(path))) as db:
            ((number,),) = list(db.execute("SELECT max(number) FROM version"))
            rows = f"rows_{number}"
            db.execute(f"DELETE FROM {rows} WHERE c0 = 3")
            db.execute(f"UPDATE {rows} SET c1 = 'chaiR 5' WHERE c0 = 5")
            db.execute(
                f"INSERT INTO {rows} SELECT 500, '{key_of(77)}', version, 77, c1, c2, c3 "
                f"FROM {rows} WHERE c0 = 4"
            )

    yield Search(), damage


@contextlib.contextmanager
def damaged_postgres(folder: Path) -> Iterator[tuple[Store, Damage]]:
    with postgresql.Postgresql.running() as server, server.database() as database:

        def damage(shop: Shop) -> None:
            database.execute("DELETE FROM shop.products WHERE id = 3")
            database.execute("UPDATE shop.products SET name = 'chaiR 5' WHERE id = 5")
            database.execute(
                "INSERT INTO shop.products (id, name, price, revision) "
                "SELECT 77, name, price, revision FROM shop.products WHERE id = 4"
            )

        yield Postgres(database.url), damage


@contextlib.contextmanager
def damaged_redis(folder: Path) -> Iterator[tuple[Store, Damage]]:
    with redis_server.Redis.running() as server, server.database() as database:

        def damage(shop: Shop) -> None:
            client: Any = database.connect()
            version = client.hget("shop:products", "version").decode()
            place = f"shop:products:{version}:"
            client.delete(f"{place}3")
            row = client.get(f"{place}5")
            client.set(f"{place}5", row.replace(b"chair 5", b"chaiR 5"))
            other = json.loads(client.get(f"{place}4"))
            client.set(f"{place}77", json.dumps({**other, "id": 77}))

        yield Redis(database.url), damage


@pytest.mark.parametrize(
    "stored",
    [
        damaged_search,
        pytest.param(damaged_postgres, marks=pytest.mark.service),
        pytest.param(damaged_redis, marks=pytest.mark.service),
    ],
)
def test_a_row_missing_extra_or_one_byte_different_is_found_and_mended(
    stored: Callable[[Path], contextlib.AbstractContextManager[tuple[Store, Damage]]],
    tmp_path: Path,
) -> None:
    with stored(tmp_path) as (store, damage), opened_shop(tmp_path, store) as shop:
        assert all(hop.proven for hop in shop.hops())
        damage(shop)
        log_to_view, in_memory, found = shop.hops()
        assert log_to_view.proven and in_memory.proven
        assert not found.error, found
        assert named(found) == [("different", 5), ("extra", 77), ("missing", 3)]
        *_, mended = shop.hops(repair=True)
        assert mended.proven
        assert all(hop.proven and not hop.moving for hop in shop.hops())


@pytest.mark.service
def test_a_row_that_has_expired_is_no_difference(tmp_path: Path) -> None:
    with redis_server.Redis.running() as server, server.database() as database:
        store = Redis(database.url, ttl=timedelta(hours=1))
        with opened_shop(tmp_path, store) as shop:
            client: Any = database.connect()
            version = client.hget("shop:products", "version").decode()
            assert client.delete(f"shop:products:{version}:3") == 1
            *_, found = shop.hops()
            assert found.proven


@pytest.mark.slow
def test_a_running_pipeline_gives_no_false_alarm(tmp_path: Path) -> None:
    with opened_shop(tmp_path, Search()) as shop:
        ended = threading.Event()

        def work() -> None:
            chosen = random.Random(1)
            while not ended.is_set():
                ids = chosen.sample(range(2 * ROWS), 5)
                shop.write(*({"id": id} if id % 5 == 0 else product(id, "sofa") for id in ids))

        writer = threading.Thread(target=work)
        with hr.start(shop.app, shop.log, spark=spark.shared()) as running:
            writer.start()
            try:
                results = [hop for _ in range(3) for hop in shop.hops()]
            finally:
                ended.set()
                writer.join()
            wait_until(lambda: not any(step.lag for step in running.progress()))
        assert not any(hop.differences or hop.error for hop in results)
        shop.run()
        assert all(hop.proven and not hop.moving for hop in shop.hops())
