"""The pipeline of orders and prices, and every operation on a view of joined tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.application.doctor import examine
from headrace.cli.loading import load_app
from headrace.errors import ChangedPipeline
from headrace.log import Log, open_log
from headrace.plan.law import Law
from headrace.store import open_views
from tests.integration.test_cli_running import Cli
from tests.spark import shared

PIPELINE = Path(__file__).parents[2] / "pipelines" / "order_prices.py"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Shop:
    """Orders and products in a log, and the pipeline over them."""

    def __init__(self, folder: Path) -> None:
        self.cli = Cli(folder)
        self.app = load_app(f"{PIPELINE}:app")
        self.log: Log = open_log(self.cli.url)
        for topic in self.app.topics.values():
            self.log.ensure_topic(topic)

    def write(self, topic: str, second: int, *rows: dict[str, Any]) -> None:
        """Commit rows of one time; a row with only an id is a deletion."""
        with self.log.producer() as producer, producer.transaction() as transaction:
            for row in rows:
                if row.keys() == {"id"}:
                    transaction.send(topic, None, key=row["id"])
                else:
                    moment = NOON + timedelta(seconds=second)
                    transaction.send(topic, {"at": moment, **row})

    def run(self, app: hr.App | None = None) -> Law:
        """Catch up with the log; returns the law's terms of all rows."""
        (step,) = hr.run(app or self.app, self.log, spark=shared())
        return step.law

    def rows(self) -> list[tuple[Any, ...]]:
        names = ("id", "product", "amount", "product_name", "product_price", "_revision")
        with open_views(self.log.url) as views:
            return [tuple(row[name] for name in names) for row in views.rows("priced_orders")]

    def changes(self) -> list[tuple[Any, ...]]:
        """The operation, order and price of each change since the last call."""
        found = [
            (
                c["op"],
                (c["after"] or c["before"])["id"],
                str((c["after"] or {}).get("product_price")),
            )
            for batch in self.log.read("order_prices.priced_orders.changes")
            for record in batch.records()
            for c in [record.value]
        ]
        self._seen, before = len(found), getattr(self, "_seen", 0)
        return found[before:]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    made.write("products", 0, {"id": "pen", "name": "Pen", "price": "1.50"})
    made.write(
        "orders",
        1,
        {"id": "a", "product": "pen", "amount": 1},
        {"id": "b", "product": "pen", "amount": 2},
        {"id": "c", "product": "ink", "amount": 3},
        {"id": "d", "product": None, "amount": 4},
    )
    made.run()
    yield made
    made.log.close()


def test_a_price_changes_the_orders_that_depend_on_it_and_no_others(shop: Shop) -> None:
    assert shop.rows() == [
        ("a", "pen", 1, "Pen", "1.50", 2),
        ("b", "pen", 2, "Pen", "1.50", 2),
        ("c", "ink", 3, None, None, 2),
        ("d", None, 4, None, None, 2),
    ]
    assert [op for op, *_ in shop.changes()] == ["c"] * 4
    shop.write("products", 5, {"id": "pen", "name": "Pen", "price": "1.75"})
    shop.run()
    assert shop.changes() == [("u", "a", "1.75"), ("u", "b", "1.75")]
    shop.write("products", 3, {"id": "pen", "name": "Pen", "price": "9.99"})
    shop.run()
    assert shop.changes() == [], "a price that was over when it came"
    shop.write("orders", 6, {"id": "b"})
    shop.write("products", 6, {"id": "ink", "name": "Ink", "price": "4.00"})
    shop.run()
    assert shop.changes() == [("d", "b", "None"), ("u", "c", "4.00")]
    shop.write("products", 7, {"id": "pen"})
    law = shop.run()
    assert shop.changes() == [("u", "a", "None")]
    assert (law.rows, law.counted, law.dead) == (10, 10, 0)


def test_the_view_is_listed_shown_asked_and_looked_at(shop: Shop) -> None:
    (listed,) = shop.cli.lines("views", "list")
    assert (listed["name"], listed["rows"], listed["emit"]) == ("priced_orders", 4, "live")
    assert listed["key"] == ["id"]
    assert "never final" in shop.cli.run("views", "show", "priced_orders").stdout
    found = shop.cli.lines(
        "views", "query", "SELECT id, _state FROM priced_orders WHERE product_price > 1"
    )
    assert found == [{"id": "a", "_state": "open"}, {"id": "b", "_state": "open"}]
    shop.cli.run("views", "list")
    shop.cli.run("doctor", f"{PIPELINE}:app")
    checked = shop.cli.run("run", f"{PIPELINE}:app", "--check").stdout
    assert "priced_orders" in checked
    (step,) = examine(shop.app, shop.log).steps
    assert (step.law.counted, step.held.shown, step.waits) == (5, 4, ())
    assert step.held.table_bytes


def changed(how: Any) -> hr.App:
    """The same pipeline with another filter."""
    app = hr.App("order_prices")
    declared = load_app(f"{PIPELINE}:app").views["priced_orders"].stream
    assert isinstance(declared, hr.TableJoin)
    first, other = declared.tables
    made = hr.join_tables(first, other, on={"product": "id"}, how=how, prefix="product_")
    app.topics.update(load_app(f"{PIPELINE}:app").topics)
    app.view("priced_orders", made)
    return app


def test_another_declaration_is_refused_compared_and_switched_to(shop: Shop) -> None:
    before, same = shop.rows(), hr.rebuild(shop.app, "priced_orders", shop.log, spark=shared())
    assert same.diff.empty
    assert same.diff.same == 4
    with pytest.raises(ChangedPipeline, match="kind of join was left and is inner"):
        shop.run(changed("inner"))
    shop.changes()
    found = hr.rebuild(changed("inner"), "priced_orders", shop.log, spark=shared(), switch=True)
    assert (found.diff.removed, found.diff.same, found.diff.added) == (2, 2, 0)
    assert shop.rows() == before[:2]
    assert shop.changes() == [("d", "c", "None"), ("d", "d", "None")]
    shop.write("products", 8, {"id": "ink", "name": "Ink", "price": "4.00"})
    shop.run(changed("inner"))
    assert shop.changes() == [("c", "c", "4.00")]


def test_the_view_is_shown_as_it_was_at_a_commit(shop: Shop) -> None:
    commit = shop.log.head()
    shop.write("products", 5, {"id": "pen", "name": "Pen", "price": "1.75"})
    shop.run()
    assert shop.rows()[0][4] == "1.75"
    then = hr.rebuild(shop.app, "priced_orders", shop.log, until=commit, spark=shared())
    assert [row["product_price"] for row in then.rows] == ["1.50", "1.50", None, None]


def test_what_compaction_leaves_of_the_tables_is_joined_to_the_same(shop: Shop) -> None:
    for topic in ("orders", "products"):
        shop.log.alter_topic(topic, settings={"cleanup": "compact"})
    for second in range(5, 9):
        shop.write("products", second, {"id": "pen", "name": "Pen", "price": f"{second}.00"})
        shop.write("orders", second, {"id": "a", "product": "pen", "amount": second}, {"id": "c"})
    shop.run()
    before = shop.rows()
    for topic in ("orders", "products"):
        assert shop.log.compact(topic).records_removed
    found = hr.rebuild(shop.app, "priced_orders", shop.log, spark=shared(), switch=True)
    assert found.diff.empty
    assert [row[:5] for row in shop.rows()] == [row[:5] for row in before]
    shop.write("products", 10, {"id": "pen", "name": "Pen", "price": "10.00"})
    shop.run()
    assert [row[4] for row in shop.rows()] == ["10.00", "10.00", None]
