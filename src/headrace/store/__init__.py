"""Derived tables: views of the log that pipelines keep, in SQLite by default."""

from headrace.store.sqlite.reading import Result, Views, ViewState, open_views

__all__ = ["Result", "ViewState", "Views", "open_views"]
