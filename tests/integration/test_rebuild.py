"""A view that is rebuilt beside the live one: the difference, and the switch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

import headrace as hr
from headrace.application.rebuild.rebuild import Rebuild
from headrace.application.run import Run
from headrace.errors import (
    AlreadyRunning,
    HeadraceError,
    InvalidPipeline,
    InvalidPosition,
    MisusedHandle,
    UnknownView,
    ViewError,
)
from headrace.operators.window.meaning import meaning
from headrace.oracle.events import events_of
from headrace.store import open_views
from headrace.store.sqlite import switching
from headrace.testing import ScriptedLog, scripted_log
from tests.property.judging import check_changelog, check_law, check_view
from tests.recovery.rebuilt import NOW, RIGHT, SECOND, WRONG, Shop, fill
from tests.spark import shared
from tests.waiting import left


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW + 600 * SECOND) as log:
        yield log


@pytest.fixture
def shop(log: ScriptedLog) -> Shop:
    """A shop whose live view drops cheap items, by mistake."""
    made = Shop(log)
    fill(made)
    made.run(WRONG)
    return made


def changed_rows(diff: Any) -> list[tuple[Any, ...]]:
    return [
        (
            c.kind,
            c.key["item"],
            c.key["window_start"][-5:-3],
            c.before.get("sold"),
            c.after.get("sold"),
        )
        for c in diff.rows
    ]


def test_a_rebuild_shows_what_was_wrong_and_the_switch_puts_it_right(shop: Shop) -> None:
    log, published = shop.log, len(shop.log.records("shop.updates"))
    with shop.rebuild() as building:
        building.build()
        diff = building.diff()
    assert (diff.added, diff.removed, diff.changed, diff.same) == (3, 0, 1, 3)
    assert changed_rows(diff) == [
        ("changed", "pen", "00", 1, 2),
        ("added", "pad", "00", None, 1),
        ("added", "pen", "01", None, 1),
        ("added", "pen", "03", None, 1),
    ]
    assert diff.rows[0].before == {"sold": 1, "revenue": 20}
    assert diff.rows[0].after == {"sold": 2, "revenue": 22}
    with open_views(log.log.url) as views:
        assert [view.name for view in views.list()] == ["sales"]
        assert len(views.rows("sales")) == 4, "the live view is as it was"

    done = shop.switch()
    assert done == diff
    assert len(shop.log.records("shop.updates")) == published, "what is published stays"
    shop.write(("pen", 7, 210), ("ink", 80, 400))
    shop.write(("pen", 9, 9), ("pad", 1, 401))
    shop.judge(RIGHT, shop.run())
    assert shop.switch().empty  # type: ignore[union-attr]


class Reader:
    """A reader of the live view that polls it, and collects each new answer."""

    SQL = "SELECT count(*), sum(sold), sum(revenue) FROM sales"

    def __init__(self, url: str) -> None:
        self.seen: list[Any] = []
        self._url = url
        self._asked = 0
        self._answered = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        self.look()
        return self

    def __exit__(self, *exception: object) -> None:
        self.look()
        self._stop.set()
        self._thread.join()

    def look(self) -> None:
        """Wait until it has read the view again."""
        with self._answered:
            since = self._asked
            assert self._answered.wait_for(lambda: self._asked > since + 1, timeout=left())

    def _read(self) -> None:
        with open_views(self._url) as views:
            while not self._stop.is_set():
                try:
                    found: Any = views.query(self.SQL).rows[0]
                except HeadraceError as error:
                    found = str(error)
                if not self.seen or self.seen[-1] != found:
                    self.seen.append(found)
                with self._answered:
                    self._asked += 1
                    self._answered.notify_all()


def test_a_reader_sees_the_one_version_or_the_other_and_nothing_between(shop: Shop) -> None:
    with Reader(shop.log.log.url) as reader:
        shop.switch()
    assert reader.seen == [(4, 4, 160), (7, 8, 174)]


@pytest.mark.slow
def test_a_reader_would_see_a_switch_that_is_made_in_two_parts(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = switching._copy
    with Reader(shop.log.log.url) as reader:

        def parted(db: apsw.Connection, step: str) -> None:
            db.execute("COMMIT")
            reader.look()
            db.execute("BEGIN IMMEDIATE")
            honest(db, step)

        monkeypatch.setattr(switching, "_copy", parted)
        shop.switch()
    assert any("no such table" in str(answer) for answer in reader.seen)


@pytest.mark.slow
def test_as_of_a_commit_or_a_moment_a_view_is_what_the_log_was_then(shop: Shop) -> None:
    _, _, sales = shop.declare()
    topic = shop.log.log.topic("orders").topic
    records = shop.log.records("orders")
    commits = sorted({record.commit or 0 for record in records})
    for commit in commits[1:4:2]:
        prefix = [record for record in records if (record.commit or 0) <= commit]
        expected = meaning(sales, events_of(topic, prefix)).panes
        app, *_ = shop.declare()
        found = hr.rebuild(app, "sales", shop.log.log, until=commit, spark=shared())
        assert not found.switched
        assert {(row["item"], row["sold"], row["_revision"]) for row in found.rows} == {
            (key[0], len(pane.rows), pane.revision) for key, pane in expected.items()
        }
    with shop.rebuild(until=NOW) as building:
        building.build()
        assert building.rows() == []
        with pytest.raises(MisusedHandle, match="as of an earlier time"):
            building.switch()


def test_a_running_application_is_built_beside_and_not_switched(shop: Shop) -> None:
    app, *_ = shop.declare(WRONG)
    with Run(app, shop.log.log, spark=shared()) as running, shop.rebuild() as building:
        building.build()
        shop.write(("ink", 70, 205))
        while running.progress()[0].lag:
            running.wait(0.1)
        diff = building.diff()
        assert (diff.added, diff.changed, diff.same) == (3, 1, 3), "at the same place in the log"
        with pytest.raises(AlreadyRunning, match="running already, as process") as caught:
            building.switch()
        assert "built, and kept" in caught.value.hint
    shop.switch()
    shop.judge(RIGHT, shop.run())


def test_what_cannot_be_rebuilt_is_told_before_spark_starts(log: ScriptedLog) -> None:
    shop = Shop(log)
    app, *_ = shop.declare()
    with pytest.raises(UnknownView, match="has no view 'saels'") as caught:
        hr.rebuild(app, "saels", log.log)
    assert caught.value.hint == "There are: sales"
    with pytest.raises(ViewError, match="cannot go back: its step also publishes"):
        hr.rebuild(app, "sales", log.log, until=0, switch=True)
    with pytest.raises(InvalidPosition, match="Commit 99 is not in the log"):
        hr.rebuild(app, "sales", log.log, until=99)
    with shop.rebuild(), pytest.raises(AlreadyRunning, match="already being built"):
        shop.rebuild()


def test_topics_with_other_columns_are_told_and_a_new_changelog_gets_every_row(
    shop: Shop,
) -> None:
    changes = {"cheapest": hr.min("price")}
    with shop.rebuild(WRONG, **changes) as building:
        building.build()
        assert building.diff().new_columns == ("cheapest",)
        with pytest.raises(InvalidPipeline, match=r"'shop\.updates' .* without all columns"):
            building.switch()
        shop.log.log.delete_topic("shop.updates")
        with pytest.raises(InvalidPipeline, match="has the columns that view 'sales' had before"):
            building.switch()
        shop.log.log.delete_topic("shop.sales.changes")
        building.switch()
    assert [r.value["op"] for r in shop.log.records("shop.sales.changes")] == ["c"] * 4
    shop.write(("ink", 70, 205))
    shop.judge(WRONG, shop.run(WRONG, **changes), **changes)


@pytest.mark.slow
def test_what_retention_took_from_the_log_is_not_given_up_unasked(log: ScriptedLog) -> None:
    shop = Shop(log)
    _, source, _ = shop.declare()
    log.log.ensure_topic(source.topic)
    log.log.alter_topic("orders", settings={"retention": "1m", "segment_age": "1s"})
    fill(shop)
    shop.run(WRONG)
    for second in (210, 211, 212):
        log.pass_time(600 * SECOND)
        shop.write(("pen", 20, second))
    log.log.upkeep("orders")
    with shop.rebuild() as building:
        building.build()
        assert building.lost > 0
        with pytest.raises(ViewError, match="rows that retention has removed"):
            building.switch()
        done = building.switch(accept_loss=True)
    assert done is not None
    assert done.removed > 0
    shop.run()


@pytest.mark.slow
def test_a_view_over_several_topics_is_switched_at_the_same_place_in_each(
    log: ScriptedLog,
) -> None:
    def declare(condition: str) -> tuple[hr.App, list[Any], hr.Aggregation]:
        app = hr.App("both")
        schema = "item string, price int, at timestamp"
        topics = [app.topic(name, schema=schema, event_time="at") for name in ("here", "there")]
        sales = hr.aggregate(
            hr.filter(hr.merge(*topics), condition),
            by="item",
            window=hr.tumbling(60 * SECOND),
            lateness=hr.Lateness(10 * SECOND, 60 * SECOND),
            sold=hr.count(),
        )
        app.view("sales", sales)
        return app, topics, sales

    wrong, (here, there), _ = declare(WRONG)
    right, _, sales = declare(RIGHT)
    for second in range(0, 200, 20):
        for topic in (here, there, here):
            at = NOW + second * SECOND
            log.write(topic, {"item": "pen", "price": second % 30, "at": at})
    log.run(wrong, spark=shared(), max_commits=7)
    found = hr.rebuild(right, "sales", log.log, switch=True, spark=shared())
    assert found.diff.changed
    log.write(there, {"item": "pen", "price": 1, "at": NOW + 200 * SECOND})
    results = log.run(right, spark=shared(), max_commits=2)
    check_view("sales", sales, results)
    check_law("sales", sales, results)
    check_changelog("both.sales.changes", sales, results, "sales")


@pytest.mark.slow
def test_a_switch_can_wait_for_the_application_to_end(shop: Shop) -> None:
    app, *_ = shop.declare(WRONG)
    with Run(app, shop.log.log, spark=shared()) as running, shop.rebuild() as building:
        building.build()
        shop.write(("ink", 70, 205))
        while running.progress()[0].lag:
            running.wait(0.1)

        def end(progress: object) -> None:
            running.close()

        done = building.switch(wait=True, tell=end)
    assert done is not None
    assert (done.added, done.changed, done.same) == (3, 1, 3)
    shop.judge(RIGHT, shop.run())


@pytest.mark.slow
def test_a_ranking_is_rebuilt_as_its_readers_see_it(log: ScriptedLog) -> None:
    def declare(condition: str) -> hr.App:
        app = hr.App("board")
        orders = app.topic("orders", schema="item string, price int, at timestamp", event_time="at")
        sales = hr.aggregate(
            hr.filter(orders, condition),
            by="item",
            window=hr.tumbling(60 * SECOND),
            lateness=hr.Lateness(10 * SECOND, 60 * SECOND),
            sold=hr.count(),
        )
        app.view("best", hr.top(sales, 2, by="sold"))
        return app

    fill(Shop(log))
    log.run(declare(WRONG), spark=shared())
    with Rebuild(declare(RIGHT), "best", log.log, spark=shared()) as building:
        building.build()
        diff = building.switch()
    assert diff is not None
    results = log.run(declare(RIGHT), spark=shared())
    with scripted_log(start=NOW + 600 * SECOND) as another:
        fill(Shop(another))
        expected = another.run(declare(RIGHT), spark=shared()).view("best")
    assert results.view("best") == expected
    table: dict[str, Any] = {}
    for change in results.topic("board.best.changes"):
        assert change["before"] == table.get(change["key"])
        table[change["key"]] = change["after"]
    assert len([row for row in table.values() if row is not None]) == len(expected)


def test_a_view_of_which_a_topic_remembers_what_it_was_told_is_not_switched(shop: Shop) -> None:
    app, _, sales = shop.declare()
    app.publish("shop.pairs", sales, retractions=True)
    with Rebuild(app, "sales", shop.log.log, spark=shared()) as building:
        building.build()
        assert building.diff().changed == 1
        with pytest.raises(ViewError, match=r"'shop\.pairs'"):
            building.switch()
