"""A table that changes while it is captured: its topic follows, or the capture says why not."""

from __future__ import annotations

import pytest

from headrace.cdc.state import read_state
from headrace.errors import SourceError, UserError
from tests.conformance.sources.stage import Stage
from tests.conformance.sources.test_snapshots import ITEMS


def test_a_column_that_is_added_is_in_the_topic_with_its_values(stage: Stage) -> None:
    stage.execute(ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    stage.capture()
    stage.execute(
        "ALTER TABLE items ADD COLUMN size INTEGER DEFAULT 5",
        "INSERT INTO items VALUES (3, 'c', 7)",
        "UPDATE items SET name = 'd' WHERE id = 1",
    )
    stage.capture()
    assert stage.current("items") == stage.rows("items")
    (notice,) = read_state(stage.log, "shop").notices
    assert notice.text.startswith(f"{stage.schema}.items: added size ")


def test_a_column_that_is_renamed_is_a_new_one_and_the_old_one_stays(stage: Stage) -> None:
    stage.execute(ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    stage.capture()
    stage.execute(
        "ALTER TABLE items RENAME COLUMN name TO title",
        "UPDATE items SET title = 'c' WHERE id = 1",
    )
    stage.capture()
    assert [(row["id"], row["title"]) for row in stage.current("items")] == [(1, "c"), (2, "b")]
    assert stage.changes("items")[0]["after"]["name"] == "a"


def test_a_column_that_is_dropped_is_null_from_then_on(stage: Stage) -> None:
    stage.execute(ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    stage.capture()
    stage.drop_column("items", "name")
    stage.execute("INSERT INTO items VALUES (3)")
    stage.capture(heal=True)
    assert [row["id"] for row in stage.current("items")] == [1, 2, 3]
    assert stage.changes("items")[-1]["after"]["name"] is None


def test_a_type_that_the_topic_cannot_hold_stops_the_capture_by_name(stage: Stage) -> None:
    stage.execute(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    stage.capture()
    stage.recreate(
        "items", "CREATE TABLE items (id INTEGER PRIMARY KEY, name DOUBLE PRECISION)",
        "INSERT INTO items VALUES (2, 1.5)",
    )  # fmt: skip
    with pytest.raises(SourceError, match=r"'name' of table .*items is now double"):
        stage.capture(heal=True)


def test_another_primary_key_stops_the_capture_by_name(stage: Stage) -> None:
    stage.execute(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    stage.capture()
    stage.recreate(
        "items", "CREATE TABLE items (id INTEGER, name VARCHAR(40) NOT NULL PRIMARY KEY)",
        "INSERT INTO items VALUES (1, 'a')",
    )  # fmt: skip
    with pytest.raises(SourceError, match=r"primary key .* was \(id\) and is now \(name\)"):
        stage.capture(heal=True)
    # The way on that the hint names.
    stage.log.delete_topic(f"shop.{stage.schema}.items")
    stage.capture(heal=True)
    stage.execute("INSERT INTO items VALUES (1, 'b')", "DELETE FROM items WHERE name = 'a'")
    stage.capture()
    assert stage.folded("items") == stage.rows("items") == [{"id": 1, "name": "b"}]
    assert {change["key"] for change in stage.changes("items")} == {'{"name":"a"}', '{"name":"b"}'}


def test_a_table_without_a_primary_key_is_refused_by_name(stage: Stage) -> None:
    stage.execute("CREATE TABLE loose (id INTEGER)")
    with pytest.raises(UserError, match=r"\bloose\b"):
        stage.capture(tables=["loose"])
