"""A pipeline in SQL on Spark: in a process, with any batches, it equals the one in Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.cli.loading import load_app
from headrace.store import open_views
from headrace.testing import scripted_log
from tests.integration.test_cli_running import Cli
from tests.spark import shared
from tests.waiting import left

PIPELINES = Path(__file__).parents[2] / "pipelines"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Site(Cli):
    """The command line on a log with page views, a few per commit."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.pipeline = load_app(f"{PIPELINES / 'pageviews.py'}:app")
        with self.open() as log:
            log.ensure_topic(self.pipeline.topics["pageviews"])
        for seconds in ((0, 10, 59), (60, 75, 30), (400, 401), (5, 402), (65, 700)):
            self.visit(*seconds)

    def visit(self, *seconds: int) -> None:
        """Commit views, each with its event time in seconds after noon."""
        with self.open() as log, log.producer() as producer, producer.transaction() as views:
            for second in seconds:
                at = NOON + second * SECOND
                url, user = f"/{second % 2}", f"u{second % 3}"
                views.send("pageviews", {"url": url, "user": user, "at": at})

    def run_sql(self, *words: str) -> str:
        """Run the SQL file until it has caught up; returns the report on its rows."""
        file = str(PIPELINES / "pageviews.sql")
        process = self.start("run", file, "--until-caught-up", *words)
        out, err = (text.decode() for text in process.communicate(timeout=left()))
        assert process.returncode == 0, err
        return out

    def run_python(self) -> None:
        with hr.start(self.pipeline, self.url, until_caught_up=True, spark=shared()) as running:
            running.wait()

    def results(self) -> tuple[list[dict[str, Any]], list[Any]]:
        with open_views(self.url) as views:
            rows = views.rows("hits_per_minute")
        late = [record.value for record in self.records("pageviews.late")]
        return rows, sorted(late, key=str)


@pytest.mark.slow
def test_the_file_of_sql_gives_what_the_file_of_python_gives(tmp_path: Path) -> None:
    at_once, in_parts, python = (Site(tmp_path / name) for name in ("once", "parts", "python"))
    python.run_python()
    rows, late = python.results()
    assert [row["hits"] for row in rows] == [3, 1, 2, 1, 1, 2, 1]
    assert [row["late_by"] for row in late] == [31.0]

    assert "12 rows = 11 counted + 1 late" in at_once.run_sql()
    assert at_once.results() == (rows, late)

    in_parts.run_sql("--max-commits", "1")
    assert in_parts.results() == (rows, late)

    # One continues where the other stopped, since the declaration is the same.
    for site in (at_once, python):
        site.visit(701, 760)
        site.run_python()
    assert at_once.results() == python.results()
    assert sum(row["hits"] for row in at_once.results()[0]) == 13


SHOP = """
CREATE TOPIC orders (item STRING, tags ARRAY<STRING>, paid INT, at TIMESTAMP)
WITH (event_time = 'at');
CREATE TOPIC returns (thing STRING, paid INT, moment TIMESTAMP) WITH (event_time = 'moment');

CREATE STREAM money AS
SELECT item, paid, at FROM orders WHERE paid > 0
UNION ALL
SELECT thing AS item, -paid AS paid, moment AS at FROM returns;

CREATE VIEW earned WITH (delay = '10 seconds', grace = '1 minute') AS
SELECT upper(item) AS thing, SUM(paid) AS earned, FIRST(paid) AS first, bit_or(paid) AS bits
FROM money GROUP BY thing, HOP(at, INTERVAL '2 minutes', INTERVAL '1 minute');

CREATE VIEW visits WITH (delay = '10 seconds', grace = '1 minute') AS
SELECT tag, COUNT(*) AS n, QUANTILE(paid, 0.5) AS middle, MAX(paid) AS dear
FROM orders LATERAL VIEW EXPLODE(tags) t AS tag
GROUP BY tag, SESSION(at, INTERVAL '30 seconds');

CREATE VIEW lately WITH (delay = '10 seconds', grace = '1 minute', emit = 'final') AS
SELECT item, COUNT(DISTINCT paid) AS prices
FROM orders GROUP BY item, SLIDE(at, INTERVAL '1 minute');

PUBLISH money TO 'money';
PUBLISH LATE OF earned TO 'earned.late';
"""


def shop() -> hr.App:
    app = hr.App("shop")
    orders = app.topic(
        "orders", schema="item string, tags array<string>, paid int, at timestamp", event_time="at"
    )
    returns = app.topic(
        "returns", schema="thing string, paid int, moment timestamp", event_time="moment"
    )
    money = hr.merge(
        hr.select(hr.filter(orders, "paid > 0"), "item", "paid", "at"),
        hr.select(returns, item="thing", paid="-paid", at="moment"),
    )
    lateness = hr.Lateness(delay=10 * SECOND, grace=60 * SECOND)
    earned = hr.aggregate(
        hr.rekey(money, thing="upper(item)"),
        by="thing",
        window=hr.hopping(120 * SECOND, every=60 * SECOND),
        lateness=lateness,
        earned=hr.sum("paid"),
        first=hr.first("paid"),
        bits=hr.expression("bit_or(paid)"),
    )
    visits = hr.aggregate(
        hr.explode(orders, "tags", into="tag"),
        by="tag",
        window=hr.session(30 * SECOND),
        lateness=lateness,
        n=hr.count(),
        middle=hr.quantile("paid", 0.5),
        dear=hr.max("paid"),
    )
    lately = hr.aggregate(
        orders,
        by="item",
        window=hr.sliding(60 * SECOND),
        lateness=lateness,
        emit="final",
        prices=hr.distinct("paid"),
    )
    app.view("earned", earned)
    app.view("visits", visits)
    app.view("lately", lately)
    app.publish("money", money)
    app.publish("earned.late", earned.late)
    return app


def shop_results(app: hr.App, max_commits: int | None) -> dict[str, list[Any]]:
    """The views and topics of an application after scripted orders and returns."""
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        for name in ("orders", "returns"):
            log.log.ensure_topic(app.topics[name])
        for seconds in ((0, 20, 45), (70, 130), (15, 200), (31, 300), (2, 301)):
            orders = [_order(second) for second in seconds]
            log.write("orders", *orders)
            log.write("returns", {"thing": "i1", "paid": 1, "moment": orders[-1]["at"]})
        results = log.run(app, spark=shared(), max_commits=max_commits)
        views = {name: results.view(name) for name in app.views}
        topics = {name: sorted(results.topic(name), key=str) for name in app.outputs}
        return {**views, **topics}


def _order(second: int) -> dict[str, Any]:
    item, tags = f"i{second % 2}", ["a", "b"][: second % 3]
    return {"item": item, "tags": tags, "paid": second % 7, "at": NOON + second * SECOND}


@pytest.mark.slow
def test_every_kind_of_statement_runs_as_its_twin_in_python(tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(SHOP)
    wanted = shop_results(shop(), None)
    assert all(wanted.values())
    assert shop_results(hr.load_sql(file), None) == wanted
    assert shop_results(hr.load_sql(file), 1) == wanted


@pytest.mark.slow
def test_what_spark_refuses_is_told_with_the_place_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(SHOP.replace("paid > 0", "paid > no_such(paid)"))
    cli = Cli(tmp_path)
    process = cli.start("run", str(file), "--until-caught-up")
    out, err = (text.decode() for text in process.communicate(timeout=left()))
    assert (process.returncode, out) == (2, "")
    assert f"See {file}:7:41: SELECT item, paid, at FROM orders WHERE paid > no_such(paid)" in err
    assert "Traceback" not in err


def test_a_file_that_is_wrong_is_told_with_its_place_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(SHOP.replace("SUM(paid)", "SUM(payed)"))
    done = Cli(tmp_path).run("run", str(file), code=2)
    assert done.stderr == (
        "error: There is no column 'payed' in 'SUM(payed)'\n"
        f"  → Did you mean 'paid'? See {file}:12:34: SELECT upper(item) AS thing, SUM(payed) AS "
        "earned, FIRST(paid) AS first, bit_or(paid) AS bits\n"
    )
    assert not (tmp_path / "log").exists()
