"""The laws of a store hold for the search index in SQLite."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.store.contract import Store, StoredView
from headrace.store.search import Search
from headrace.store.suite import StoreSuite


@dataclass(frozen=True)
class AnySearch(Search):
    """An index of views that may have no text: their numbers are not searched."""

    def _searched(self, view: StoredView) -> tuple[str, ...]:
        return tuple(f.name for f in view.columns if pa.types.is_string(f.type)) or (
            view.columns.names[0],
        )


class TestSearchStore(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return AnySearch()


def test_the_file_of_an_index_is_beside_the_log(tmp_path: Path) -> None:
    view = StoredView("shop", "orders", pa.schema([("id", pa.string())]), ("id",), tmp_path / "s")
    with Search().beside(view):
        assert (tmp_path / "s" / "shop" / "orders.search.db").exists()
    Search().remove(view)
    assert not list((tmp_path / "s" / "shop").iterdir())
