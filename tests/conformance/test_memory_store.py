"""The laws of a store hold for the shortest one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from headrace.store.contract import Store
from headrace.store.suite import StoreSuite
from tests.conformance.memory_store import MemoryStore


class TestMemoryStore(StoreSuite):
    survives = False

    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()

    def outage(self, store: Store) -> contextlib.AbstractContextManager[None]:
        assert isinstance(store, MemoryStore)
        return _down(store)


@contextlib.contextmanager
def _down(store: MemoryStore) -> Iterator[None]:
    store.shelf.down = True
    try:
        yield
    finally:
        store.shelf.down = False
