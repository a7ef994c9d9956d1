"""A view with a mistake, its corrected version, and rows that show the difference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import headrace as hr
from headrace.application.rebuild.rebuild import Rebuild
from headrace.pipeline.stream import Source
from headrace.store.sqlite.difference import Diff
from headrace.testing import Results, ScriptedLog
from tests.property.judging import (
    check_changelog,
    check_dead,
    check_late,
    check_law,
    check_view,
)
from tests.spark import shared

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
RIGHT, WRONG = "price > 0", "price > 10"


class Shop:
    """An application in two versions, on a log."""

    def __init__(self, log: ScriptedLog, name: str = "shop") -> None:
        self.log = log
        self.name = name

    def declare(
        self, condition: str = RIGHT, **changes: Any
    ) -> tuple[hr.App, Source, hr.Aggregation]:
        app = hr.App(self.name)
        # No step uses the note, and late rows have it.
        columns = "item string, price int, note string, at timestamp"
        orders = app.topic("orders", schema=columns, event_time="at")
        sales = hr.aggregate(
            hr.filter(orders, condition),
            **{
                "by": "item",
                "window": hr.tumbling(60 * SECOND),
                "lateness": hr.Lateness(10 * SECOND, 60 * SECOND),
                "sold": hr.count(),
                "revenue": hr.sum("price"),
                **changes,
            },
        )
        app.view("sales", sales)
        app.publish(f"{self.name}.late", sales.late)
        app.publish(f"{self.name}.updates", sales)
        return app, orders, sales

    def write(self, *orders: tuple[str, int, int | None]) -> int:
        """Commit orders, each an item, its price, and its event time in seconds after noon."""
        _, source, _ = self.declare()
        return self.log.write(
            source,
            *(
                {
                    "item": item,
                    "price": price,
                    "at": None if second is None else NOW + second * SECOND,
                }
                for item, price, second in orders
            ),
        )

    def run(self, condition: str = RIGHT, **changes: Any) -> Results:
        app, *_ = self.declare(condition, **changes)
        return self.log.run(app, spark=shared())

    def rebuild(self, condition: str = RIGHT, *, until: Any = None, **settings: Any) -> Rebuild:
        crash_point = (
            {"crash_point": settings.pop("crash_point")} if "crash_point" in settings else {}
        )
        app, *_ = self.declare(condition, **settings)
        return Rebuild(app, "sales", self.log.log, until=until, spark=shared(), **crash_point)

    def switch(self, condition: str = RIGHT, **settings: Any) -> Diff | None:
        with self.rebuild(condition, **settings) as building:
            building.build()
            return building.switch()

    def judge(self, condition: str, results: Results, **changes: Any) -> None:
        """Check that the view and its changelog are the oracle's for this version."""
        _, _, sales = self.declare(condition, **changes)
        check_view("sales", sales, results)
        check_law("sales", sales, results)
        check_changelog(f"{self.name}.sales.changes", sales, results, "sales")
        check_dead(self.name, "sales", sales, results)
        check_late(f"{self.name}.late", sales, results)


def results_of(log: ScriptedLog, app: str) -> Results:
    """The stored results, without a run."""
    return Results(log.log, app, ())


def fill(shop: Shop) -> None:
    """Write three minutes of orders; some are cheap, one is late and one has no event time."""
    shop.write(("pen", 2, 5), ("ink", 30, 6), ("cup", 40, None))
    shop.write(("pen", 20, 30), ("pad", 3, 20))
    shop.write(("ink", 50, 70), ("pen", 4, 75))
    shop.write(("ink", 60, 200))
    shop.write(("ink", 90, 8), ("pen", 5, 201))
