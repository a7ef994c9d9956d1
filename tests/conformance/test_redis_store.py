"""The laws of a store hold for Redis, and a ranking always agrees with the rows."""

from __future__ import annotations

import contextlib
import json
import pickle
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import InvalidPipeline, InvalidSetting, StoreError, StoreUnavailable
from headrace.servers.java import ports
from headrace.store.contract import Store, StoredView, StorePosition, StoreTable
from headrace.store.json_keys import key_text
from headrace.store.redis import Redis
from headrace.store.suite import StoreSuite, changes_of, rows_of
from tests.servers import redis as servers
from tests.waiting import wait_until

pytestmark = pytest.mark.service

SECRET = "hunter2-is-the-secret"


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Redis]:
    """A Redis of these tests alone, which they kill."""
    with servers.Redis.running() as server:
        yield server


@pytest.fixture
def database(server: servers.Redis) -> Iterator[servers.Database]:
    with server.database() as database:
        yield database


class TestRedis(StoreSuite):
    @pytest.fixture
    def store(self, server: servers.Redis, database: servers.Database) -> Store:
        self.server = server
        return Redis(database.url)

    def outage(self, store: Store) -> contextlib.AbstractContextManager[None]:
        return _down(self.server)


@contextlib.contextmanager
def _down(server: servers.Redis) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


SCORES = pa.schema(
    [
        ("player", pa.string()),
        ("country", pa.string()),
        ("score", pa.int64()),
        ("revision", pa.int64()),
    ]
)


def view(folder: Path, key: tuple[str, ...] = ("player",)) -> StoredView:
    return StoredView("game", "scores", SCORES, key, folder)


def row(player: str | None, score: int | None, country: str = "nl") -> dict[str, Any]:
    return {"player": player, "country": country, "score": score, "revision": 1}


def board(client: Any, name: str = "game:scores", group: str = "") -> list[tuple[str, float]]:
    version = client.hget(name, "version").decode()
    found = client.zrevrange(f"{name}:ranking:{version}{group}", 0, -1, withscores=True)
    return [(member.decode(), score) for member, score in found]


def filled(store: Store, view: StoredView, rows: list[dict[str, Any]], at: int = 1) -> StoreTable:
    with store.beside(view) as built:
        built.fill([changes_of(view, rows, at=at)], StorePosition("one", at))
    store.switch(view)
    return store.live(view)


def test_a_row_is_json_that_any_client_reads(database: servers.Database, tmp_path: Path) -> None:
    kind = view(tmp_path)
    with filled(Redis(database.url), kind, [row("ann", 5), row(None, 1)]), _client(database) as c:
        facts = c.hgetall("game:scores")
        version = facts[b"version"].decode()
        assert json.loads(facts[b"key"]) == ["player"]
        assert json.loads(c.get(f"game:scores:{version}:ann")) == row("ann", 5)
        assert json.loads(c.get(f"game:scores:{version}:[null]")) == row(None, 1)


def test_no_two_keys_have_the_same_text() -> None:
    keys = [("a",), (None,), ("[null]",), ("null",), ("",), ("a", "b"), ('a","b',), ('["a","b"]',)]
    assert len({key_text(key) for key in keys}) == len(keys)


def test_a_ranking_has_the_rows_that_there_are(database: servers.Database, tmp_path: Path) -> None:
    store, kind = Redis(database.url, ranking="score"), view(tmp_path)
    rows = [row("ann", 5), row("bob", 3), row("cat", None)]
    with filled(store, kind, rows) as live, _client(database) as client:
        assert board(client) == [("ann", 5), ("bob", 3)]
        live.apply(changes_of(kind, [row("bob", 9), row("cat", 4)], [{"player": "ann"}], at=2))
        assert board(client) == [("bob", 9), ("cat", 4)]
        live.apply(changes_of(kind, [row("bob", None)], at=3))
        assert board(client) == [("cat", 4)]
        filled(store, kind, [row("dan", 1)], at=4).close()
        assert board(client) == [("dan", 1)]


def test_a_rank_that_goes_to_another_takes_its_former_holder_off_the_board(
    database: servers.Database, tmp_path: Path
) -> None:
    columns = pa.schema([("rank", pa.int64()), *SCORES])
    kind = StoredView("game", "scores", columns, ("rank",), tmp_path)
    store = Redis(database.url, ranking="score", member="player")
    first = [{"rank": 1, **row("ann", 9)}, {"rank": 2, **row("bob", 5)}]
    with filled(store, kind, first) as live, _client(database) as client:
        swapped = [{"rank": 1, **row("bob", 12)}, {"rank": 2, **row("ann", 9)}]
        live.apply(changes_of(kind, swapped, at=2))
        assert board(client) == [("bob", 12), ("ann", 9)]
        live.apply(changes_of(kind, [{"rank": 2, **row("cat", 10)}], at=3))
        assert board(client) == [("bob", 12), ("cat", 10)]


def test_each_group_has_a_ranking_of_its_own(database: servers.Database, tmp_path: Path) -> None:
    store, kind = Redis(database.url, ranking="score", within="country"), view(tmp_path)
    rows = [row("ann", 5), row("bob", 3, "be"), row("cat", 7)]
    with filled(store, kind, rows) as live, _client(database) as client:
        assert board(client, group=":nl") == [("cat", 7), ("ann", 5)]
        live.apply(changes_of(kind, [row("cat", 7, "be")], at=2))
        assert board(client, group=":nl") == [("ann", 5)]
        assert board(client, group=":be") == [("cat", 7), ("bob", 3)]


def test_a_row_disappears_when_its_time_to_live_is_over(
    database: servers.Database, tmp_path: Path
) -> None:
    store, kind = Redis(database.url, ttl=timedelta(milliseconds=300)), view(tmp_path)
    with filled(store, kind, [row("ann", 5)]) as live:
        wait_until(lambda: rows_of(live) == [])
        assert live.position() == StorePosition("one", 1)


def test_a_row_that_is_written_lives_as_long_as_its_time_to_live(
    database: servers.Database, tmp_path: Path
) -> None:
    store, kind = Redis(database.url, ttl=timedelta(minutes=10)), view(tmp_path)
    with filled(store, kind, [row("ann", 5)]) as live, _client(database) as client:
        live.apply(changes_of(kind, [row("bob", 5)], at=2))
        version = client.hget("game:scores", "version").decode()
        for key in ("ann", "bob"):
            assert 0 < client.pttl(f"game:scores:{version}:{key}") <= 600_000


def test_old_rows_stay_a_minute_for_readers_who_know_their_version(
    database: servers.Database, tmp_path: Path
) -> None:
    store, kind = Redis(database.url, ranking="score"), view(tmp_path)
    filled(store, kind, [row("ann", 5)]).close()
    with _client(database) as client:
        old = client.hget("game:scores", "version").decode()
        filled(store, kind, [row("bob", 5)], at=2).close()
        for key in (f"game:scores:{old}:ann", f"game:scores:ranking:{old}"):
            assert 0 < client.pttl(key) <= 60_000
        store.remove(kind)
        assert client.keys() == []


def test_keys_of_others_stay_when_a_view_is_removed(
    database: servers.Database, tmp_path: Path
) -> None:
    store, kind = Redis(database.url), view(tmp_path)
    filled(store, kind, [row("ann", 5)]).close()
    with _client(database) as client:
        client.set("game:scores:mine", 1)
        store.remove(kind)
        assert client.keys() == [b"game:scores:mine"]


def test_applications_of_one_name_are_told_apart_by_a_prefix(
    database: servers.Database, tmp_path: Path
) -> None:
    kind = view(tmp_path)
    one, other = Redis(database.url, prefix="test"), Redis(database.url)
    filled(one, kind, [row("ann", 1)]).close()
    with filled(other, kind, [row("bob", 1)]) as live:
        one.remove(kind)
        assert rows_of(live) == [row("bob", 1)]


def test_a_server_that_lost_its_last_seconds_is_found_out_and_catches_up(tmp_path: Path) -> None:
    with servers.Redis.running("--appendonly=no") as server, server.database() as database:
        store, kind = Redis(database.url), view(tmp_path)
        with filled(store, kind, [row("ann", 1)]) as live, _client(database) as client:
            client.save()
            live.apply(changes_of(kind, [row("bob", 2)], at=2))
            server.kill()
            server.start()
            with pytest.raises(StoreUnavailable, match="is at 1, and was at 2"):
                live.apply(changes_of(kind, [row("cat", 3)], at=3))
            assert live.position() == StorePosition("one", 1)
            live.apply(changes_of(kind, [row("bob", 2), row("cat", 3)], at=3))
            assert rows_of(live) == [row("ann", 1), row("bob", 2), row("cat", 3)]


def test_a_server_that_is_killed_again_and_again_has_rows_and_a_position_that_agree(
    server: servers.Redis, database: servers.Database, tmp_path: Path
) -> None:
    store, kind = Redis(database.url, ranking="score"), view(tmp_path)
    players = [f"p{number}" for number in range(300)]
    filled(store, kind, [row(player, 1) for player in players]).close()
    stop = threading.Event()
    applied: list[int] = []

    def follow() -> None:
        while not stop.is_set():
            with contextlib.suppress(StoreUnavailable), store.live(kind) as live:
                position = live.position()
                assert position is not None
                offset = position.offset
                while not stop.is_set():
                    offset += 1
                    live.apply(changes_of(kind, [row(p, offset) for p in players], at=offset))
                    applied.append(offset)

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        for _ in range(5):
            wanted = len(applied) + 3
            wait_until(partial(_reached, applied, wanted))
            server.kill()
            server.start()
    finally:
        stop.set()
        follower.join()
    with store.live(kind) as live, _client(database) as client:
        position = live.position()
        assert position is not None and position.offset >= applied[-1]
        assert rows_of(live) == sorted(
            (row(player, position.offset) for player in players), key=lambda r: r["player"]
        )
        assert board(client) == [(p, position.offset) for p in sorted(players, reverse=True)]


def _reached(applied: list[int], wanted: int) -> bool:
    return len(applied) > wanted


def test_a_process_that_was_overtaken_writes_nothing(
    database: servers.Database, tmp_path: Path
) -> None:
    store, kind = Redis(database.url), view(tmp_path)
    with filled(store, kind, [row("ann", 1)]) as zombie:
        zombie.position()
        with filled(store, kind, [row("bob", 2)], at=2) as live:
            with pytest.raises(StoreUnavailable):
                zombie.apply(changes_of(kind, [row("ann", 3)], at=3))
            assert rows_of(live) == [row("bob", 2)]


def test_a_server_that_evicts_rows_is_refused_unless_the_view_is_a_cache(tmp_path: Path) -> None:
    settings = ("--maxmemory=100mb", "--maxmemory-policy=allkeys-lru")
    with servers.Redis.running(*settings) as server, server.database() as database:
        with pytest.raises(StoreError, match="evicts any key"):
            Redis(database.url).live(view(tmp_path))
        with Redis(database.url, ttl=timedelta(hours=1)).live(view(tmp_path)) as live:
            assert live.position() is None


def test_a_server_without_memory_applies_nothing_and_goes_on_when_it_has_some(
    tmp_path: Path,
) -> None:
    with servers.Redis.running() as server, server.database() as database:
        store, kind = Redis(database.url), view(tmp_path)
        with filled(store, kind, [row("ann", 1)]) as live, _client(database) as client:
            client.config_set("maxmemory", "1mb")
            with pytest.raises(StoreUnavailable):
                live.apply(changes_of(kind, [row("bob", 2)], at=2))
            assert rows_of(live) == [row("ann", 1)]
            client.config_set("maxmemory", "0")
            live.apply(changes_of(kind, [row("bob", 2)], at=2))
            assert rows_of(live) == [row("ann", 1), row("bob", 2)]


def test_a_cluster_is_refused(tmp_path: Path) -> None:
    (bus,) = ports.free(1)
    settings = ("--cluster-enabled=yes", "--databases=1", f"--cluster-port={bus}")
    with servers.Redis.running(*settings) as server:
        store = Redis(f"redis://127.0.0.1:{server.port}")
        with pytest.raises(StoreError, match="Redis Cluster"):
            store.live(view(tmp_path))


def test_a_wrong_password_is_refused_and_never_shown(tmp_path: Path) -> None:
    with servers.Redis.running() as server:
        server.connect().config_set("requirepass", "another")
        store = Redis(f"redis://:{SECRET}@127.0.0.1:{server.port}/0")
        with pytest.raises(StoreError, match="refused the login") as caught:
            store.live(view(tmp_path))
    shown = [str(caught.value), repr(caught.value.__context__), repr(store), store.address]
    assert not [text for text in shown if SECRET in text]
    assert pickle.loads(pickle.dumps(store)) == store


@pytest.mark.parametrize(
    "url", ["http://host", f"redis://:{SECRET}@host:port", f"redis://host?password={SECRET}"]
)
def test_an_impossible_address_is_refused_and_its_password_never_shown(url: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Redis(url)
    assert SECRET not in str(caught.value)


def test_a_ranking_that_cannot_be_is_refused(tmp_path: Path) -> None:
    url = "redis://127.0.0.1:1"
    with pytest.raises(InvalidPipeline, match="'scored', which it lacks"):
        Redis(url, ranking="scored").check(view(tmp_path))
    with pytest.raises(InvalidPipeline, match="cannot be ranked by 'country'"):
        Redis(url, ranking="country").check(view(tmp_path))
    with pytest.raises(InvalidSetting, match="cannot have a ttl"):
        Redis(url, ranking="score", ttl=timedelta(1))
    with pytest.raises(InvalidSetting, match="belong to a ranking"):
        Redis(url, member="player")


@contextlib.contextmanager
def _client(database: servers.Database) -> Iterator[Any]:
    with contextlib.closing(database.connect()) as client:
        yield client
