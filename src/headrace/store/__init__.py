"""Derived tables: views of the log that pipelines keep, in SQLite by default."""

from headrace.store.sqlite.reading import Views, ViewState, open_views
from headrace.store.sqlite.result import Result

__all__ = ["Result", "ViewState", "Views", "open_views"]
