"""Reading views: what a query that finds nothing says."""

from __future__ import annotations

from pathlib import Path

from headrace.views import open_views
from headrace.views.database import Database
from headrace.views.location import views_folder


def test_a_query_with_values_that_finds_nothing_still_has_columns(tmp_path: Path) -> None:
    url = f"file:{tmp_path}"
    Database(views_folder(url) / "shop.db", "shop").close()
    with open_views(url) as views:
        found = views.query("SELECT name, law FROM _headrace_step WHERE name = ?", ("none",))
    assert (found.columns, found.rows) == (("name", "law"), [])
