"""Derived tables: views of the log that pipelines keep, in SQLite and in other stores."""

from headrace.store.contract import Changes, Store, StoredView, StorePosition, StoreTable
from headrace.store.search import Found, Hit, Search, SearchIndex, open_search
from headrace.store.sqlite.reading import Views, ViewState, open_views
from headrace.store.sqlite.result import Result

__all__ = [
    "Changes", "Found", "Hit", "Result", "Search", "SearchIndex", "Store", "StorePosition",
    "StoreTable", "StoredView", "ViewState", "Views", "open_search", "open_views",
]  # fmt: skip
