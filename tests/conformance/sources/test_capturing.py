"""The laws of a captured table: its topic folds to the table, transaction by transaction."""

from __future__ import annotations

from headrace.cdc.state import read_state
from tests.conformance.sources.stage import Stage

ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, name VARCHAR(40))"


def test_the_rows_from_before_the_capture_are_read(stage: Stage) -> None:
    stage.execute(ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, NULL)")
    stage.capture()
    assert stage.folded("items") == stage.rows("items")
    assert [change["op"] for change in stage.changes("items")] == ["r", "r"]


def test_a_transaction_is_one_commit_with_its_changes_in_order(stage: Stage) -> None:
    stage.execute(ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    stage.capture()
    stage.transaction(
        "INSERT INTO items VALUES (3, 'c')",
        "UPDATE items SET name = 'd' WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
    )
    stage.capture()
    changes = stage.changes("items")[2:]
    assert [(change["op"], change["source"]["order"]) for change in changes] == [
        ("c", 1),
        ("u", 2),
        ("d", 3),
    ]
    assert len({change["commit"] for change in changes}) == 1
    assert stage.folded("items") == stage.rows("items")


def test_what_was_rolled_back_is_not_captured(stage: Stage) -> None:
    stage.execute(ITEMS)
    stage.capture()
    stage.transaction("INSERT INTO items VALUES (1, 'a')", rollback=True)
    stage.execute("INSERT INTO items VALUES (2, 'b')")
    stage.capture()
    assert stage.folded("items") == stage.rows("items")
    assert len(stage.changes("items")) == 1


def test_a_changed_key_is_a_delete_and_a_create(stage: Stage) -> None:
    stage.execute(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    stage.capture()
    stage.execute("UPDATE items SET id = 7 WHERE id = 1")
    stage.capture()
    assert [change["op"] for change in stage.changes("items")] == ["r", "d", "c"]
    assert stage.folded("items") == stage.rows("items")


def test_a_capture_that_runs_again_repeats_nothing(stage: Stage) -> None:
    stage.execute(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    stage.capture()
    stage.execute("UPDATE items SET name = 'b'")
    stage.capture()
    first = stage.changes("items")
    stage.capture()
    assert stage.changes("items") == first
    state = read_state(stage.log, "shop")
    assert state.reached.changes == 1
