"""`headrace views`: quick, without Spark, and read-only."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from tests.integration.test_cli_running import Cli

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = "url string, user string, at timestamp"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A log with a view of three minutes: one final, one fired, one open."""
    made = Cli(tmp_path_factory.mktemp("views"))
    app = hr.App("site", log=made.url)
    views = app.topic("pageviews", schema=SCHEMA, event_time="at")
    per_minute = hr.aggregate(
        views,
        by="url",
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(delay=timedelta(seconds=10), grace=timedelta(minutes=1)),
        hits=hr.count(),
    )
    app.view("hits", per_minute)
    with made.open() as log:
        log.create_topic("pageviews", schema=SCHEMA, event_time="at")
        for commit in ([5, 6, None], [70], [140], [7]):
            with log.producer() as producer:
                for second in commit:
                    at = None if second is None else NOON + timedelta(seconds=second)
                    producer.send("pageviews", {"url": "/[x]", "user": "ann", "at": at})
    hr.run(app)
    return made


def test_views_are_listed_with_how_far_they_are(cli: Cli) -> None:
    header, line = cli.run("views", "list").stdout.splitlines()
    assert header.split() == ["view", "app", "rows", "watermark", "emit", "key", "late", "dead"]
    assert line.split("  ")[0] == "hits"
    (listed,) = cli.lines("views", "list")
    assert listed["name"] == "hits"
    assert listed["app"] == "site"
    assert listed["rows"] == 3
    assert listed["key"] == ["url", "window_start"]
    assert listed["emit"] == "updates"
    assert listed["watermark"] == "2026-01-31T12:02:10Z"
    assert (listed["delay"], listed["grace"]) == (10.0, 60.0)
    assert (listed["law"]["rows"], listed["law"]["late"], listed["law"]["dead"]) == (6, 1, 1)


def test_the_rows_of_a_view_say_which_of_them_are_final(cli: Cli) -> None:
    rows = cli.lines("views", "show", "hits")
    assert [(row["window_start"], row["hits"], row["_state"]) for row in rows] == [
        ("2026-01-31 12:02:00", 1, "open"),
        ("2026-01-31 12:01:00", 1, "fired"),
        ("2026-01-31 12:00:00", 2, "final"),
    ]
    shown = cli.run("views", "show", "hits", "--limit", "2")
    assert "watermark  2026-01-31 12:02:10Z" in shown.stdout
    assert "6 rows = 4 counted + 1 late + 1 dead" in shown.stdout
    assert shown.stdout.count("/[x]") == 2
    assert "final" not in shown.stdout.splitlines()[-1]
    assert "There are more than 2 rows" in shown.stderr


def test_a_view_can_be_queried(cli: Cli) -> None:
    assert cli.lines("views", "query", "SELECT sum(hits) AS hits FROM hits") == [{"hits": 4}]
    assert cli.lines("views", "query", "SELECT x'ff' AS a, null AS b, 9e999 AS \"c\"") == [
        {"a": {"base64": "/w=="}, "b": None, "c": "Infinity"}
    ]
    shown = cli.run("views", "query", "SELECT url, hits FROM site.hits WHERE hits > 9").stdout
    assert shown.split() == ["url", "hits"]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM hits",
        "DELETE FROM _headrace_panes_hits",
        "UPDATE _headrace_step SET frontier = 0",
        "CREATE TABLE t (a)",
        "ATTACH 'x.db' AS x",
        "PRAGMA query_only = 0",
    ],
)
def test_a_query_that_writes_is_refused(cli: Cli, sql: str) -> None:
    assert cli.run("views", "query", sql, code=2).stderr.startswith("error: ")
    assert cli.lines("views", "query", "SELECT count(*) AS n FROM hits") == [{"n": 3}]


def test_a_query_that_takes_too_long_is_stopped(cli: Cli) -> None:
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t"
    done = cli.run("views", "query", endless, "--seconds", "0.1", code=2)
    assert done.stderr.startswith("error: The query took longer than 0.1 s\n")


def test_only_one_query_is_asked_at_a_time(cli: Cli) -> None:
    done = cli.run("views", "query", "SELECT 1; SELECT 2", code=2)
    assert done.stderr == "error: There are several queries\n  → Ask one at a time\n"
    assert "is empty" in cli.run("views", "query", " ", code=2).stderr


def test_a_view_that_is_not_there_is_told_with_those_that_are(cli: Cli) -> None:
    done = cli.run("views", "show", "hit", code=2)
    assert done.stderr == "error: There is no view 'hit'\n  → There are: hits\n"
    assert (
        "There are the views: hits" in cli.run("views", "query", "SELECT * FROM x", code=2).stderr
    )


def test_views_can_be_those_of_one_application(cli: Cli) -> None:
    assert len(cli.lines("views", "list", "--app", "site")) == 1
    assert cli.lines("views", "list", "--app", "other") == []
    assert "There are no views" in cli.run("views", "list", "--app", "other").stderr


def test_a_log_that_is_not_there_has_no_views(tmp_path: Path) -> None:
    assert "There is no log in " in Cli(tmp_path).run("views", "list", code=1).stderr
    assert not (tmp_path / "log").exists()


def test_looking_at_views_needs_no_spark(cli: Cli) -> None:
    program = (
        "import sys\n"
        "from headrace.cli.main import app\n"
        "try:\n"
        f"    app(['views', 'show', 'hits', '--log', {cli.url!r}], prog_name='headrace')\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "sys.exit('pyspark was imported' if 'pyspark' in sys.modules else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
