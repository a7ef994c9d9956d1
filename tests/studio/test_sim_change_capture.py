"""Stores that follow captured changes end up equal to the database, and dual writes do not."""

from __future__ import annotations

import pytest

from headrace.studio.learn.captured_shop import STEPS, STORES, history
from headrace.studio.learn.catalog import simulate
from headrace.studio.learn.dual_writes import SIMULATION
from headrace.studio.learn.simulation import Setup

NAME = "change-capture"
ACTS = "4:stop,6:delete,8:compact,9:join,10:start"


def setup(**given: object) -> Setup:
    return SIMULATION.setup({name: str(value) for name, value in given.items()})


def test_the_same_setup_gives_the_same_history() -> None:
    chosen = setup(do=ACTS)
    assert history.__wrapped__(chosen) == history.__wrapped__(chosen)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_store_that_has_caught_up_is_equal_to_the_database(seed: int) -> None:
    moments = history(setup(seed=seed, fails=50, warehouse=4, do=ACTS))
    for moment in moments:
        for name, copy in moment.copies.items():
            assert copy.lag or copy.rows == moment.database, name
    end = moments[-1]
    assert {name: copy.lag for name, copy in end.copies.items()} == dict.fromkeys(
        (*STORES, "reports"), 0
    )
    assert len(end.database) > 0


def test_dual_writes_are_right_only_while_none_goes_wrong() -> None:
    def wrong(seed: int, fails: int) -> int:
        frame = simulate(NAME, step=STEPS, seed=seed, fails=fails)
        return int(frame.number("dual writes: wrong"))

    assert [wrong(seed, 0) for seed in (1, 2)] == [0, 0]
    assert all(wrong(seed, 50) > 0 for seed in (1, 2))


def test_a_stopped_store_is_behind_and_reads_on() -> None:
    stopped = simulate(NAME, step=12, do="4:stop")
    again = simulate(NAME, step=STEPS, do="4:stop,12:start")
    assert int(stopped.number("search lag")) > 5
    assert (again.number("search lag"), again.number("captured: wrong")) == (0, 0)


def test_a_delete_is_followed_by_its_tombstone() -> None:
    before, after = (history(setup(do="10:delete"))[step] for step in (10, 11))
    new = [entry for entry in after.entries if entry.offset >= before.end]
    product = min(before.database)
    assert [(entry.op, entry.product) for entry in new[:2]] == [
        ("delete", product),
        ("tombstone", product),
    ]


def test_compaction_leaves_one_record_of_each_product_and_a_new_store_gets_all() -> None:
    moments = history(setup(do=f"{STEPS - 3}:compact,{STEPS - 2}:join"))
    products = [entry.product for entry in moments[-1].entries]
    assert len(products) == len(set(products)) < len(moments[-4].entries)
    assert moments[-1].copies["reports"].rows == moments[-1].database
