"""The rows of a query, as Python values and as tables of other tools."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import MissingExtra
from headrace.store.sqlite import typed


@dataclass(frozen=True)
class Result:
    """The answer to a query. Values are as SQLite has them: times and decimals are text."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool
    """True if there were more rows than the limit."""
    types: tuple[str | None, ...] = ()
    """Arrow types of the columns that are columns of a view, None for others; empty if unknown."""

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table.

        Columns of a view have their declared types. Computed columns, such as a sum, have those of
        their values.
        """
        return typed.table_of(self.columns, self.rows, self.types)

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        return as_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """The rows as a Polars DataFrame."""
        return as_polars(self.to_arrow())


def as_pandas(table: pa.Table) -> Any:
    """Convert an Arrow table to a pandas DataFrame."""
    _installed("pandas", "pandas<3")
    return table.to_pandas()


def as_polars(table: pa.Table) -> Any:
    """Convert an Arrow table to a Polars DataFrame."""
    return _installed("polars", "polars").from_arrow(table)


def _installed(name: str, requirement: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingExtra(
            f"The package {name!r} is not installed", hint=f"pip install '{requirement}'"
        ) from None
