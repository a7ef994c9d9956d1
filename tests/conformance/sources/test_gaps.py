"""Changes that the source no longer has are named, and healed by what differs."""

from __future__ import annotations

import pytest

from headrace.cdc.state import read_state
from headrace.errors import SourceGap
from tests.conformance.sources.stage import SMALL, Stage
from tests.conformance.sources.test_snapshots import ITEMS, TEN


def test_a_gap_is_named_before_anything_is_written(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    stage.capture()
    stage.lose_changes()
    before = stage.changes("items")
    for _ in range(2):
        with pytest.raises(SourceGap, match="were not captured") as caught:
            stage.capture()
        assert caught.value.details["after"] == read_state(stage.log, "shop").reached.position
        assert "--heal" in caught.value.hint
    assert stage.changes("items") == before


def test_a_healed_gap_writes_only_the_rows_that_differ(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    stage.capture(limits=SMALL)
    before = len(stage.changes("items"))
    stage.lose_changes()
    stage.capture(limits=SMALL, heal=True)
    healed = stage.changes("items")[before:]
    assert [(change["op"], change["key"]) for change in healed] == [
        ("r", '{"id":1}'),
        ("r", '{"id":99}'),
        ("d", '{"id":2}'),
    ]
    assert stage.folded("items") == stage.rows("items")
    (notice,) = read_state(stage.log, "shop").notices
    assert notice.kind == "gap"


def test_a_gap_is_healed_at_once_when_snapshots_are_made_when_needed(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    stage.capture(snapshot="when_needed")
    stage.lose_changes()
    stage.capture(snapshot="when_needed")
    assert stage.folded("items") == stage.rows("items")


def test_the_stream_goes_on_after_a_healed_gap(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    stage.capture()
    stage.lose_changes()
    stage.capture(heal=True)
    stage.execute("UPDATE items SET name = 'later' WHERE id = 99", "DELETE FROM items WHERE id = 1")
    stage.capture()
    assert stage.folded("items") == stage.rows("items")
