"""Derived tables: views of the log that pipelines keep, in SQLite and in other stores."""

from headrace.store.contract import Changes, Store, StoredView, StorePosition, StoreTable
from headrace.store.sqlite.reading import Views, ViewState, open_views
from headrace.store.sqlite.result import Result

__all__ = [
    "Changes", "Result", "Store", "StorePosition", "StoreTable", "StoredView", "ViewState", "Views",
    "open_views",
]  # fmt: skip
