"""Verification: damage at each hop is named and mended, and what is on its way is no damage."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.application.verify import marks, patience
from headrace.application.verify.result import last_of
from tests.shop import ROWS, Shop, key_of, named, opened_shop, product


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(patience, "_PATIENCE", 0)
    with opened_shop(tmp_path) as made:
        yield made


def test_what_was_derived_well_is_proven(shop: Shop) -> None:
    log_to_view, view_to_store = shop.verify()
    assert log_to_view.proven and view_to_store.proven
    assert log_to_view.rows == log_to_view.rows_other == ROWS - 1
    assert view_to_store.rows == view_to_store.rows_other == ROWS - 1
    assert log_to_view.moving == view_to_store.moving == 0


def test_damage_of_a_store_is_named_with_the_commit_that_wrote_the_row(shop: Shop) -> None:
    rows, version = dict(shop.version.rows), shop.version
    del rows[key_of(3)]
    rows[key_of(77)] = rows[key_of(4)].set_column(0, "id", pa.array([77]))
    rows[key_of(5)] = rows[key_of(5)].set_column(1, "name", pa.array(["chair 4"]))
    version.rows = rows
    log_to_view, found = shop.verify()
    assert log_to_view.proven and not found.proven
    assert (found.missing, found.extra, found.different) == (1, 1, 1)
    assert named(found) == [("different", 5), ("extra", 77), ("missing", 3)]
    by_key = {row.key["id"]: row for row in found.rows_differing}
    assert by_key[5].expected == {"name": "chair 5"}
    assert by_key[5].found == {"name": "chair 4"}
    end = shop.log.head()
    write = by_key[5].write
    assert write is not None and 0 < write.commit <= end
    assert by_key[77].write is None


def test_damage_of_a_view_is_found_between_the_log_and_the_view(shop: Shop) -> None:
    shop.damage_view("UPDATE {table} SET name = 'chair 99' WHERE id = 9")
    shop.damage_view("DELETE FROM {table} WHERE id = 10")
    log_to_view, view_to_store = shop.verify()
    assert named(log_to_view) == [("different", 9), ("missing", 10)]
    (write,) = {row.write.transaction for row in log_to_view.rows_differing if row.write} - {
        None,
        "tx10",
    }
    assert write == "tx11"
    assert named(view_to_store) == [("different", 9), ("extra", 10)]


def test_a_repaired_store_is_what_its_view_is(shop: Shop) -> None:
    rows = dict(shop.version.rows)
    del rows[key_of(3)]
    rows[key_of(77)] = rows[key_of(4)].set_column(0, "id", pa.array([77]))
    shop.version.rows = rows
    _, mended = shop.verify(repair=True)
    assert mended.proven
    _, again = shop.verify()
    assert again.proven and again.rows_other == ROWS - 1
    last = last_of(shop.log.home, "shop", "products")
    assert last is not None and last.proven


def test_a_repaired_view_is_what_the_log_says_and_its_store_follows(shop: Shop) -> None:
    shop.damage_view("UPDATE {table} SET name = 'chair 99' WHERE id = 9")
    log_to_view, view_to_store = shop.verify(repair=True)
    assert log_to_view.proven and view_to_store.proven
    assert all(hop.proven for hop in shop.verify())


def test_changes_that_a_store_has_not_applied_are_on_their_way(shop: Shop) -> None:
    behind = copy.copy(shop.version)
    shop.write(product(3, "sofa"), product(90), {"id": 4})
    shop.run()
    shop.store.shelf.live["shop", "products"] = behind
    _, found = shop.verify()
    assert found.proven
    assert found.moving == 3


def test_damage_is_found_in_a_store_that_is_behind(shop: Shop) -> None:
    behind = copy.copy(shop.version)
    behind.rows = {k: v for k, v in behind.rows.items() if k != key_of(20)}
    shop.write(product(3, "sofa"))
    shop.run()
    shop.store.shelf.live["shop", "products"] = behind
    _, found = shop.verify()
    assert named(found) == [("missing", 20)]
    assert found.moving == 1


def test_only_what_has_changed_is_compared_again(shop: Shop) -> None:
    shop.verify()
    shop.damage_store(30, None)
    shop.write(product(3, "sofa"), {"id": 4})
    shop.run()
    log_to_view, view_to_store = shop.verify(changed=True)
    assert log_to_view.proven and view_to_store.proven
    assert log_to_view.rows == view_to_store.rows == 1
    assert log_to_view.ranges == view_to_store.ranges == 2
    assert not view_to_store.whole
    assert not shop.verify()[1].proven


def test_damage_of_a_changed_row_is_found_among_the_changes(shop: Shop) -> None:
    shop.verify()
    shop.write(product(3, "sofa"))
    shop.run()
    shop.damage_store(3, "sofa 4")
    _, found = shop.verify(changed=True)
    assert named(found) == [("different", 3)]


def test_a_difference_stays_known_until_its_row_is_right(shop: Shop) -> None:
    shop.damage_view("UPDATE {table} SET name = 'chair 99' WHERE id = 9")
    shop.damage_store(30, None)
    shop.verify()
    for _ in range(2):
        log_to_view, view_to_store = shop.verify(changed=True)
        assert named(log_to_view) == [("different", 9)]
        assert named(view_to_store) == [("different", 9), ("missing", 30)]
    last = last_of(shop.log.home, "shop", "products")
    assert last is not None and not last.proven
    shop.damage_view("UPDATE {table} SET name = 'chair 9' WHERE id = 9")
    log_to_view, view_to_store = shop.verify(changed=True)
    assert log_to_view.proven and log_to_view.rows == 1
    assert named(view_to_store) == [("missing", 30)]
    assert not view_to_store.whole and view_to_store.ranges == 2


def test_what_a_repair_has_mended_is_not_compared_again(shop: Shop) -> None:
    shop.damage_view("UPDATE {table} SET name = 'chair 99' WHERE id = 9")
    shop.verify(repair=True)
    log_to_view, _ = shop.verify(changed=True)
    assert log_to_view.proven and log_to_view.rows == 0


def test_everything_is_compared_again_after_too_many_differences(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "MOST_KEYS", 1)
    shop.damage_store(30, None)
    shop.damage_store(31, None)
    shop.verify()
    log_to_view, view_to_store = shop.verify(changed=True)
    assert not log_to_view.whole and view_to_store.whole
    assert named(view_to_store) == [("missing", 30), ("missing", 31)]
