"""The laws of a store hold for the cache of the catalog pipeline, a store of a user's own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import InvalidPipeline
from headrace.store.contract import Store, StoredView
from headrace.store.suite import StoreSuite
from pipelines.catalog import JsonFile


class TestCatalogCache(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return JsonFile(str(tmp_path / "cache"))

    @pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.decimal128(10, 2)], ids=str)
    def test_values_that_json_does_not_have_are_refused(
        self, store: Store, tmp_path: Path, kind: pa.DataType
    ) -> None:
        columns = pa.schema([("id", pa.int64()), ("other", kind)])
        with pytest.raises(InvalidPipeline, match="'other' is "):
            store.check(StoredView("shop", "orders", columns, ("id",), tmp_path))

    def test_values_are_read_as_they_were_written(self, store: Store, tmp_path: Path) -> None:
        """Of the types that are left, the other laws have some."""

    def test_keys_may_have_several_columns_of_any_type_and_nulls(
        self, store: Store, tmp_path: Path
    ) -> None:
        """The same."""
