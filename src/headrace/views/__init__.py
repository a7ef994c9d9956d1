"""Derived tables: views of the log that pipelines keep, in SQLite by default."""

from headrace.views.reading import Views, ViewState, open_views

__all__ = ["ViewState", "Views", "open_views"]
