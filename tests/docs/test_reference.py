"""The reference is complete and up to date."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import apsw
import pytest

import headrace
import headrace.testing
from headrace import errors, eventsourcing
from headrace.errors import HeadraceError
from headrace.log.file.catalog import FORMAT
from headrace.log.file.tables import SCHEMA
from tests.docs.api import THEMES
from tests.docs.reference import FILES, FOLDER, pages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("file", FILES)
def test_a_generated_page_is_what_the_code_says(file: str) -> None:
    assert (FOLDER / file).read_text() == pages()[file], "run scripts/reference"


def test_no_page_of_python_names_is_left_over() -> None:
    assert set(pages()) == set(FILES)
    there = {str(path.relative_to(FOLDER)) for path in (FOLDER / "python").iterdir()}
    assert there == {file for file in FILES if file.startswith("python/")}


def test_every_public_name_has_one_place_in_the_reference() -> None:
    names = [name for theme in THEMES.values() for name in theme.all()]
    assert sorted(name for name in names if "." not in name) == sorted(headrace.__all__), (
        "add the name to a theme in tests/docs/api.py, and run scripts/reference"
    )
    of_testing = [name.rpartition(".")[2] for name in names if name.startswith("headrace.testing.")]
    assert sorted(of_testing) == sorted(headrace.testing.__all__)
    of_domains = {name.rpartition(".")[2] for name in names if "eventsourcing." in name}
    # Results of functions that are there: users do not name their types.
    made = {"Aggregate", "Cancel", "CommandType", "Decision", "EventType", "Send", "Timeout"}
    assert of_domains | made == set(eventsourcing.__all__)


def test_every_public_name_has_a_text() -> None:
    empty = [
        (file, entry[0])
        for file, text in pages().items()
        if file.startswith("python/") and file != "python/README.md"
        for entry in re.findall(r"^(## .+\n\n```py\n(?:.*\n)*?```\n\n)(?=#|\Z|\n)", text, re.M)
    ]
    assert empty == []


def test_every_error_is_drawn_in_the_tree() -> None:
    drawn = errors.__doc__ or ""
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, HeadraceError):
            assert name in drawn, f"{name} is not in the tree at the top of errors.py"


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    for record in (ROOT / "docs/decisions").glob("0*.md"):
        assert record.name in index


def test_every_table_of_the_catalog_is_in_the_format() -> None:
    format_page = (FOLDER / "log-format.md").read_text()
    tables = [line.split()[2] for line in SCHEMA.splitlines() if line.startswith("CREATE TABLE")]
    assert len(tables) > 10
    for table in tables:
        assert f"`{table}`" in format_page, table


def test_the_format_page_names_the_version_that_is_written() -> None:
    assert f"Format version: **{FORMAT}**" in (FOLDER / "log-format.md").read_text()


def test_every_column_of_the_catalog_is_in_the_format() -> None:
    format_page = (FOLDER / "log-format.md").read_text()
    db = apsw.Connection(":memory:")
    db.execute(SCHEMA)
    columns = db.execute(
        "SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c "
        "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"
    ).fetchall()
    assert len(columns) > 50
    for table, column in columns:
        assert re.search(rf"\b{column}\b", format_page), f"{table}.{column}"
