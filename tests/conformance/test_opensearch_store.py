"""The laws of a store hold for a real OpenSearch, and no late change brings a deleted row back."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.clock import VirtualClock
from headrace.errors import InvalidPipeline, InvalidSetting, StoreError, StoreUnavailable
from headrace.store.contract import Store, StoredView, StorePosition
from headrace.store.opensearch import OpenSearch
from headrace.store.opensearch import table as tables
from headrace.store.opensearch.table import OpenSearchTable
from headrace.store.suite import StoreSuite, changes_of, rows_of
from tests.servers import opensearch as servers
from tests.waiting import wait_until

pytestmark = [pytest.mark.service, pytest.mark.slow]

SECRET = "hunter2-is-the-secret"
COLUMNS = pa.schema([("id", pa.string()), ("text", pa.string()), ("revision", pa.int64())])
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[servers.OpenSearch]:
    with servers.OpenSearch.running() as server:
        yield server


def made(server: servers.OpenSearch, **given: Any) -> OpenSearch:
    """A store whose indexes no other test has."""
    settings = {"number_of_replicas": 0, **given.pop("settings", {})}
    return OpenSearch(server.url, prefix=f"test-{next(_numbers)}-", settings=settings, **given)


class TestOpenSearch(StoreSuite):
    atomic = False
    versioned = True

    @pytest.fixture
    def store(self, server: servers.OpenSearch) -> Store:
        self.server = server
        return made(server)

    def outage(self, store: Store) -> contextlib.AbstractContextManager[None]:
        return _down(self.server)


@contextlib.contextmanager
def _down(server: servers.OpenSearch) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


def view(folder: Path) -> StoredView:
    return StoredView("shop", "products", COLUMNS, ("id",), folder)


def row(id: str, number: int, text: str = "a red lamp") -> dict[str, Any]:
    return {"id": id, "text": text, "revision": number}


def filled(store: Store, kind: StoredView, rows: list[dict[str, Any]]) -> OpenSearchTable:
    with store.beside(kind) as built:
        built.fill([changes_of(kind, rows, at=1)], StorePosition("one", 1))
    store.switch(kind)
    live = store.live(kind)
    assert isinstance(live, OpenSearchTable)
    return live


def late(live: OpenSearchTable, kind: StoredView, id: str, version: int) -> None:
    """A change that was under way for long, and passed its process's look at the position."""
    index = live._progress().version
    assert index is not None
    live._send(index, changes_of(kind, [row(id, version, "from the dead")], at=version))


def found(store: OpenSearch, client: Any, kind: StoredView, words: str) -> list[str]:
    """The ids that a reader finds by the alias."""
    client.indices.refresh(index=f"{store.alias(kind)}~*")
    body = {"query": {"match": {"text": words}}} if words else {"query": {"match_all": {}}}
    hits = client.search(index=store.alias(kind), body=body)["hits"]["hits"]
    return sorted(hit["_id"] for hit in hits)


def test_readers_search_an_alias_that_hides_tombstones_and_the_position(
    server: servers.OpenSearch, tmp_path: Path
) -> None:
    store, kind = made(server), view(tmp_path)
    live = filled(store, kind, [row("a", 1), row("b", 1, "a blue chair")])
    with live, contextlib.closing(server.connect()) as client:
        assert found(store, client, kind, "lamp") == ["a"]
        live.apply(changes_of(kind, [row("c", 2)], [{"id": "a"}], at=2))
        assert found(store, client, kind, "lamp") == ["c"]
        assert found(store, client, kind, "") == ["b", "c"]
        assert client.get(index=store.alias(kind), id="c")["_source"] == row("c", 2)


def test_a_late_change_never_brings_a_deleted_row_back(
    server: servers.OpenSearch, tmp_path: Path
) -> None:
    store, kind = made(server), view(tmp_path)
    with filled(store, kind, [row("a", 1)]) as live:
        live.apply(changes_of(kind, [], [{"id": "a"}], at=20))
        late(live, kind, "a", 15)
        assert rows_of(live) == []


def test_without_versions_a_late_change_brings_a_deleted_row_back(
    server: servers.OpenSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, kind = made(server), view(tmp_path)

    def unversioned(index: str, key: str, version: int) -> bytes:
        return b'{"index": {"_index": "%b~write", "_id": "%b"}}\n' % (index.encode(), key.encode())

    with filled(store, kind, [row("a", 1)]) as live:
        live.apply(changes_of(kind, [], [{"id": "a"}], at=20))
        monkeypatch.setattr(tables, "_action", unversioned)
        late(live, kind, "a", 15)
        assert rows_of(live) == [row("a", 15, "from the dead")]


def test_a_deleted_document_forgets_its_version_and_so_tombstones_are_needed(
    server: servers.OpenSearch, tmp_path: Path
) -> None:
    clock = VirtualClock()
    store = made(server, tombstones=timedelta(hours=1), clock=clock, settings={"gc_deletes": "1ms"})
    kind = view(tmp_path)
    with filled(store, kind, [row("a", 1), row("b", 1)]) as live:
        live.apply(changes_of(kind, [], [{"id": "a"}, {"id": "b"}], at=20))
        index = live._progress().version
        assert index is not None
        late(live, kind, "a", 15)
        assert rows_of(live) == []
        clock.advance(timedelta(hours=2))
        live._forget(index, StorePosition("one", 20))

        def back() -> bool:
            late(live, kind, "b", 15)
            return rows_of(live) != []

        wait_until(back)
        assert rows_of(live) == [row("b", 15, "from the dead")]


def test_tombstones_stay_until_their_time_is_over_and_then_go(
    server: servers.OpenSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_FORGET_EVERY", 1)
    clock = VirtualClock()
    store, kind = made(server, clock=clock), view(tmp_path)
    with filled(store, kind, [row("a", 1), row("b", 1)]) as live:
        live.apply(changes_of(kind, [], [{"id": "a"}], at=2))
        clock.advance(timedelta(minutes=59))
        live.apply(changes_of(kind, [], [{"id": "b"}], at=3))
        assert documents(live) == {"_position", "a", "b"}
        clock.advance(timedelta(minutes=2))
        live.apply(changes_of(kind, [], at=4))
        assert documents(live) == {"_position", "b"}


def documents(live: OpenSearchTable) -> set[str]:
    index = live._progress().version
    assert index is not None
    everything: dict[str, Any] = {"match_all": {}}
    return {hit["_id"] for page in live._pages(index, everything) for hit in page}


def test_a_server_that_is_killed_again_and_again_has_rows_and_a_position_that_agree(
    server: servers.OpenSearch, tmp_path: Path
) -> None:
    store, kind = made(server), view(tmp_path)
    ids = [f"p{number}" for number in range(100)]
    filled(store, kind, [row(id, 1) for id in ids]).close()
    for _ in range(3):
        with store.live(kind) as live:
            reached = live.position()
            assert reached is not None
            offset = reached.offset + 3
            for number in range(reached.offset + 1, offset + 1):
                live.apply(changes_of(kind, [row(id, number) for id in ids], at=number))
            server.kill()
            with pytest.raises(StoreUnavailable):
                live.apply(changes_of(kind, [row(id, offset + 1) for id in ids], at=offset + 1))
        server.start()
        with store.live(kind) as live:
            assert live.position() == StorePosition("one", offset)
            assert rows_of(live) == sorted(
                (row(id, offset) for id in ids), key=lambda one: str(one["id"])
            )


def test_a_value_that_its_mapping_refuses_stops_the_view_with_the_reason(
    server: servers.OpenSearch, tmp_path: Path
) -> None:
    mapping = {"text": {"type": "geo_point", "ignore_malformed": False}}
    store, kind = made(server, mappings=mapping), view(tmp_path)
    with store.beside(kind) as built, pytest.raises(StoreError, match=r"refused the row .*'a'"):
        built.fill([changes_of(kind, [row("a", 1)], at=1)], StorePosition("one", 1))


def test_ids_that_opensearch_cannot_have_are_replaced(
    server: servers.OpenSearch, tmp_path: Path
) -> None:
    ids = ["", "_position", "_x", "x" * 600, "x" * 600 + "y", "ä" * 300]
    kind = view(tmp_path)
    with filled(made(server), kind, [row(id, 1) for id in ids]) as live:
        assert rows_of(live) == sorted((row(id, 1) for id in ids), key=lambda one: str(one["id"]))
        assert live.position() == StorePosition("one", 1)


def test_names_that_differ_in_case_have_indexes_of_their_own() -> None:
    store = OpenSearch("http://127.0.0.1:1")
    names = [("shop", "orders"), ("Shop", "orders"), ("shop", "Orders"), ("shop", "ORDERS")]
    views = [StoredView(app, name, COLUMNS, ("id",), Path()) for app, name in names]
    assert len({store.alias(one) for one in views}) == len(views)
    assert store.alias(views[0]) == "shop~orders"


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="no column 'txt'"):
        OpenSearch("http://h", mappings={"txt": {"type": "keyword"}}).check(view(tmp_path))
    columns = pa.schema([("id", pa.int64()), ("_headrace", pa.int64())])
    with pytest.raises(InvalidPipeline, match="'_headrace'"):
        OpenSearch("http://h").check(StoredView("a", "b", columns, ("id",), tmp_path))
    with pytest.raises(InvalidSetting):
        OpenSearch("redis://h")


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    store = OpenSearch(f"http://admin:{SECRET}@127.0.0.1:1")
    with pytest.raises(StoreUnavailable) as caught, store.live(view(tmp_path)) as live:
        live.position()
    assert store.address == "opensearch+http://127.0.0.1:1"
    for text in (str(caught.value), repr(caught.value), repr(store), store.address):
        assert SECRET not in text
