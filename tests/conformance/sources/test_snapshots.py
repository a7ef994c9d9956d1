"""Snapshots go in chunks beside the stream, and lose nothing when they are interrupted."""

from __future__ import annotations

import pytest

from headrace.cdc import run
from headrace.cdc.state import read_state
from headrace.errors import UnknownTopic, UserError
from tests.conformance.sources.stage import SMALL, Crashed, Stage, crash_at

ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, name VARCHAR(40))"
TEN = "INSERT INTO items VALUES " + ", ".join(f"({n}, 'item {n}')" for n in range(1, 11))


def test_a_snapshot_goes_in_chunks_by_key(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    stage.capture(limits=SMALL)
    commits = [change["commit"] for change in stage.changes("items")]
    assert [commits.count(commit) for commit in sorted(set(commits))] == [3, 3, 3, 1]
    assert stage.folded("items") == stage.rows("items")


def test_a_chunk_leaves_out_what_was_changed_after_it_was_read(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    done: list[str] = []

    def change(point: str) -> None:
        """Change rows each time that a chunk was read, and not written yet."""
        if point == "chunk" and len(done) < 3:
            number = 3 * len(done) + 1
            done.append(point)
            stage.transaction(
                f"UPDATE items SET name = 'changed' WHERE id = {number}",
                f"DELETE FROM items WHERE id = {number + 1}",
                f"INSERT INTO items VALUES ({100 + number}, 'new')",
                f"UPDATE items SET id = {-number} WHERE id = {number + 2}",
            )

    stage.capture(limits=SMALL, crash_point=change)
    assert len(done) == 3
    assert stage.folded("items") == stage.rows("items")


def test_a_killed_snapshot_goes_on_after_its_last_chunk(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    with pytest.raises(Crashed):
        stage.capture(limits=SMALL, crash_point=crash_at("committed", 3))
    assert len(stage.changes("items")) == 6
    stage.execute("UPDATE items SET name = 'changed' WHERE id IN (1, 9)")
    stage.capture(limits=SMALL)
    keys = [change["key"] for change in stage.changes("items") if change["op"] == "r"]
    assert len(keys) == len(set(keys))
    assert stage.folded("items") == stage.rows("items")


def test_a_table_is_snapshotted_again_and_only_differences_are_written(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    stage.capture(limits=SMALL)
    before = len(stage.changes("items"))
    progress = stage.capture(limits=SMALL, again=[f"{stage.schema}.items"])
    assert len(stage.changes("items")) == before
    (table,) = progress.tables
    assert table.snapshot is not None
    assert (table.snapshot.read, table.snapshot.written, table.snapshot.deleted) == (10, 0, 0)


def test_an_unknown_table_cannot_be_snapshotted_again(stage: Stage) -> None:
    stage.execute(ITEMS)
    with pytest.raises(UserError, match="'nothing'"):
        stage.capture(again=["nothing"])


def test_without_snapshots_only_the_stream_is_captured(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    stage.capture(snapshot="never")
    stage.execute("UPDATE items SET name = 'changed' WHERE id = 1")
    stage.capture(snapshot="never")
    assert [change["op"] for change in stage.changes("items")] == ["u"]


def test_a_table_that_is_captured_later_gets_a_snapshot(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    stage.capture(tables=["items"])
    stage.execute(
        "CREATE TABLE others (id INTEGER PRIMARY KEY)", "INSERT INTO others VALUES (1), (2)"
    )
    stage.capture(tables=["items", "others"])
    assert stage.folded("others") == stage.rows("others")
    assert stage.folded("items") == stage.rows("items")


def test_a_topic_that_was_deleted_gets_the_whole_table_again(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    stage.capture()
    stage.log.delete_topic(stage.topic("items"))
    stage.execute("DELETE FROM items WHERE id = 3")
    stage.capture()
    assert stage.folded("items") == stage.rows("items")


def test_the_snapshot_says_how_far_it_is(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    with pytest.raises(UnknownTopic):
        read_state(stage.log, "shop")
    read: list[int] = []
    with stage.source() as source:
        run(
            source,
            stage.log,
            "shop",
            until_caught_up=True,
            limits=SMALL,
            tell=lambda progress: read.extend(
                table.snapshot.read for table in progress.tables if table.snapshot is not None
            ),
        )
    assert read == sorted(read)
    assert {3, 6, 9, 10} <= set(read)
