"""A capture that dies at any point loses nothing and repeats nothing."""

from __future__ import annotations

import pytest

from headrace.cdc import Capture, Limits
from headrace.cdc.capture import POINTS, CrashPoint
from headrace.errors import ProducerFenced, SourceError
from headrace.log.home import folder_of
from tests.conformance.sources.stage import SMALL, Crashed, Stage, crash_at
from tests.conformance.sources.test_snapshots import ITEMS, TEN


@pytest.mark.parametrize("nth", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4))])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_is_as_if_it_had_not_been(stage: Stage, point: str, nth: int) -> None:
    crashed = 0

    def capture(limits: Limits, crash_point: CrashPoint) -> None:
        nonlocal crashed
        try:
            stage.capture(limits=limits, crash_point=crash_point)
        except Crashed:
            crashed += 1

    stage.execute(ITEMS, TEN)
    capture(SMALL, crash_at(point, nth))
    stage.transaction(
        "UPDATE items SET name = 'b' WHERE id < 4",
        "DELETE FROM items WHERE id = 5",
        "INSERT INTO items VALUES (11, 'c')",
    )
    stage.transaction(*(f"UPDATE items SET name = 'x{n}' WHERE id = 2" for n in range(25)))
    for again in range(1, 5):
        capture(SMALL, crash_at(point, again))
    assert crashed
    stage.capture(limits=SMALL)
    assert stage.folded("items") == stage.rows("items")
    changes = [change for change in stage.changes("items") if change["source"]["tx"] is not None]
    places = [(change["source"]["tx"], change["source"]["order"]) for change in changes]
    assert len(places) == len(set(places)), "a change is in the log once"


def test_a_transaction_larger_than_a_commit_comes_in_numbered_parts(stage: Stage) -> None:
    stage.execute(ITEMS)
    stage.capture()
    stage.transaction(*(f"INSERT INTO items VALUES ({n}, 'a')" for n in range(25)))
    stage.capture(limits=Limits(changes=10))
    found = {
        (change["commit"], change["source"]["part"], change["source"]["last_part"])
        for change in stage.changes("items")
    }
    assert [part[1:] for part in sorted(found)] == [(1, False), (2, False), (3, True)]
    assert [change["source"]["order"] for change in stage.changes("items")] == list(range(1, 26))
    assert len({change["source"]["tx"] for change in stage.changes("items")}) == 1


def test_the_copy_of_rows_is_made_again_if_it_was_lost(stage: Stage) -> None:
    stage.execute(ITEMS, TEN)
    stage.capture()
    for file in (folder_of(stage.log.home) / "cdc").iterdir():
        file.unlink()
    stage.execute("DELETE FROM items WHERE id = 4", "UPDATE items SET name = 'b' WHERE id = 5")
    stage.capture(again=[f"{stage.schema}.items"])
    assert len(stage.changes("items")) == 12
    assert stage.folded("items") == stage.rows("items")


def test_an_older_capture_cannot_write_any_more(stage: Stage) -> None:
    stage.execute(ITEMS)
    stage.capture()
    with stage.source() as source, Capture(source, stage.log, "shop") as older:
        stage.execute("INSERT INTO items VALUES (1, 'a')")
        stage.capture()
        stage.execute("INSERT INTO items VALUES (2, 'b')")
        with pytest.raises((ProducerFenced, SourceError)):  # whichever it notices first
            while True:
                older.step(0)
    stage.capture()
    assert [change["op"] for change in stage.changes("items")] == ["c", "c"]
