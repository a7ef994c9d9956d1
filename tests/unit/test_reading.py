"""Reading views: the list of views, and the limits of a query."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from headrace.clock import SECOND, Clock, VirtualClock
from headrace.errors import AmbiguousView, InvalidQuery
from headrace.store import Views, open_views
from headrace.store.location import views_folder
from headrace.store.sqlite.database import FORMAT, Database
from headrace.store.sqlite.query_process import answer

COUNTING = (
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < {most}) "
    "SELECT count(*) FROM t"
)


def make(folder: Path, app: str, view: str = "hits", value: str = "") -> Path:
    """A database of an application with one view of one row."""
    path = views_folder(f"file:{folder}") / f"{app}.db"
    with_views = Database(path, app)
    with with_views.writing() as db:
        db.execute(f"CREATE TABLE stored (url TEXT); INSERT INTO stored VALUES ('{value or app}')")
        db.execute(f'CREATE VIEW "{view}" AS SELECT url FROM stored')
        law = {"rows": 1, "counted": 1}
        db.execute(
            "INSERT INTO _headrace_step VALUES (?, '', '', '{}', '{}', NULL, ?, 0)",
            (view, json.dumps(law)),
        )
        columns = json.dumps([["url", "string"]])
        db.execute(
            "INSERT INTO _headrace_view VALUES (?1, ?1, ?2, ?3, 'live', 0, 0)",
            (view, '["url"]', columns),
        )
    with_views.close()
    return path


@pytest.fixture
def views(tmp_path: Path) -> Iterator[Views]:
    make(tmp_path, "shop")
    with open_views(f"file:{tmp_path}") as opened:
        yield opened


def test_a_query_with_values_that_finds_nothing_still_has_columns(views: Views) -> None:
    found = views.query("SELECT name, law FROM _headrace_step WHERE name = ?", ("none",))
    assert (found.columns, found.rows) == (("name", "law"), [])


# The list of views


def test_a_process_with_many_open_files_can_query(views: Views) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4_096)), hard))
        for _ in range(1_030):
            stack.enter_context(open(os.devnull))
        assert views.query("SELECT 1 AS one").rows == [(1,)]


@pytest.mark.parametrize("app", ["main", "temp", "TEMP", "Main", "select", "a.b-c"])
def test_an_application_may_have_any_name(tmp_path: Path, app: str) -> None:
    make(tmp_path, app)
    make(tmp_path, "shop", "other")
    with open_views(f"file:{tmp_path}") as views:
        assert [(state.app, state.name) for state in views.list()] == [
            (app, "hits"),
            ("shop", "other"),
        ]
        assert views.rows("hits") == [{"url": app}]
        assert views.query("SELECT * FROM hits").rows == [(app,)]
        assert views.query(f'SELECT h.url, o.url FROM "{app}".hits h, shop.other o').rows == [
            (app, "shop")
        ]


def test_applications_whose_names_differ_by_case_are_two(tmp_path: Path) -> None:
    make(tmp_path, "Shop")
    make(tmp_path, "shop")
    with open_views(f"file:{tmp_path}") as views:
        assert views.query("SELECT url FROM shop.hits").rows == [("shop",)]
        assert views.query("SELECT url FROM Shop.hits").rows == [("Shop",)]
        with pytest.raises(AmbiguousView, match=r"'hits': Shop, shop\. Write Shop\.hits or shop"):
            views.state("hits")
        assert views.state("Shop.hits").app == "Shop"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT url FROM hits",
        "SELECT count(*) FROM HITS",
        "SELECT s.url FROM second.hits s, hits",
        "WITH t AS (SELECT * FROM hits) SELECT 1 FROM t",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM 'hits')",
    ],
)
def test_a_view_that_two_applications_have_is_asked_for_by_both_names(
    tmp_path: Path, sql: str
) -> None:
    make(tmp_path, "second")
    make(tmp_path, "first")
    with open_views(f"file:{tmp_path}") as views:
        with pytest.raises(AmbiguousView, match=r"'hits': first, second\. Write \"first\"\.\"hits"):
            views.query(sql)
        with pytest.raises(AmbiguousView, match=r"'hits': first, second\. Write first\.hits or se"):
            views.rows("hits")
    with open_views(f"file:{tmp_path}", app="second") as views:
        assert views.query("SELECT url FROM hits").rows == [("second",)]
        assert views.rows("hits") == [{"url": "second"}]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT hits.url, s.url FROM first.hits, second.hits s", ("first", "second")),
        ('SELECT url FROM "second"."hits"', ("second",)),
        ("WITH hits AS (SELECT 7) SELECT count(*) FROM hits", (1,)),
        ("WITH hits(n) AS (SELECT 7) SELECT n FROM hits", (7,)),
    ],
)
def test_a_query_that_says_which_view_is_answered(
    tmp_path: Path, sql: str, found: tuple[object, ...]
) -> None:
    make(tmp_path, "second")
    make(tmp_path, "first")
    with open_views(f"file:{tmp_path}") as views:
        assert views.query(sql).rows == [found]
        assert views.rows("second.hits") == [{"url": "second"}]


def test_more_applications_than_sqlite_attaches_are_read(tmp_path: Path) -> None:
    made = make(tmp_path, "app000")
    for number in range(1, 130):
        shutil.copy(made, made.with_name(f"app{number:03}.db"))
    with open_views(f"file:{tmp_path}") as views:
        assert len(views.list()) == 130
        with pytest.raises(AmbiguousView, match=r"app000, .*, app004, \.\.\.\. Write"):
            views.query("SELECT count(*) FROM hits")
        assert views.query("SELECT count(*) FROM app129.hits, app003.hits").rows == [(1,)]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("garbage", "file is not a database"),
        ("foreign", "it is not a database of views"),
        ("newer", f"a newer headrace made it, in format {FORMAT + 1}"),
        ("folder", "disk I/O error"),
    ],
)
def test_a_file_that_holds_no_views_is_named_and_left_out(
    tmp_path: Path, kind: str, reason: str
) -> None:
    path = make(tmp_path, "shop").with_name("alien.db")
    if kind == "garbage":
        path.write_bytes(b"not a database" * 100)
    elif kind == "folder":
        path.mkdir()
    else:
        if kind == "newer":
            make(tmp_path, "alien")
        db = apsw.Connection(str(path))
        db.execute(f"CREATE TABLE t (a); PRAGMA user_version = {FORMAT + 1}")
        db.close()
    with open_views(f"file:{tmp_path}") as views:
        assert [state.app for state in views.list()] == ["shop"]
        assert views.query("SELECT url FROM hits").rows == [("shop",)]
        assert views.skipped() == {path: reason}


def test_a_database_that_is_being_made_is_not_told_of(tmp_path: Path) -> None:
    make(tmp_path, "shop").with_name("young.db").touch()
    with open_views(f"file:{tmp_path}") as views:
        assert (len(views.list()), views.skipped()) == (1, {})


@pytest.mark.parametrize(
    "sql",
    [
        """SELECT 'a"b' AS t, url FROM hits WHERE url != '"'""",
        """SELECT 1 AS t, url FROM 'hits' -- it's "here""",
        """SELECT 1 AS t, url /* " */ FROM [hits] WHERE url != 'it''s'""",
    ],
)
def test_a_view_is_found_whatever_else_the_text_holds(views: Views, sql: str) -> None:
    assert [url for _, url in views.query(sql).rows] == ["shop"]


READER = """
import json, os, sys
from headrace.store import open_views
with open_views(f"file:{sys.argv[1]}") as views:
    views._asker._running()  # nobody may not be allowed to start root's Python
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    print(json.dumps([[s.name for s in views.list()], views.rows("hits"),
        views.query("SELECT url FROM hits").rows]))
"""


@pytest.mark.parametrize("writer", ["gone", "at work"])
def test_who_may_only_read_reads_views(writer: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="headrace-"))
    try:
        path = make(folder, "shop")
        at_work = Database(path, "shop") if writer == "at work" else None
        for place in (folder, *folder.rglob("*")):
            place.chmod(0o555 if place.is_dir() else 0o444)
        done = subprocess.run(
            [sys.executable, "-c", READER, folder], check=False, capture_output=True, text=True
        )
        assert done.stdout, done.stderr
        assert json.loads(done.stdout) == [["hits"], [{"url": "shop"}], [["shop"]]]
        if at_work is not None:
            at_work.close()
    finally:
        for place in (folder, *folder.rglob("*")):
            place.chmod(0o755)
        shutil.rmtree(folder)


# The limits of a query


class Ticking(Clock):
    """A clock that advances by a second whenever it is read."""

    def __init__(self) -> None:
        self._seconds = 0

    def now(self) -> int:
        return self.monotonic()

    def monotonic(self) -> int:
        self._seconds += 1
        return self._seconds * SECOND

    def sleep(self, micros: int) -> None:
        """Refuse to sleep."""


def asked(sql: str, seconds: float) -> dict[str, object]:
    return {"databases": {}, "sql": sql, "values": (), "limit": None, "seconds": seconds}


def test_a_query_is_limited_by_time_and_not_by_its_steps() -> None:
    many_steps = COUNTING.format(most=300_000)
    assert answer(asked(many_steps, 0.01), VirtualClock())["rows"] == [(300_000,)]
    with pytest.raises(InvalidQuery, match="The query took longer than 2 s"):
        answer(asked(many_steps, 2.0), Ticking())


@pytest.mark.parametrize(
    "sql",
    [
        COUNTING.format(most=10**15),
        "SELECT count(*) FROM _headrace_step a, (" + COUNTING.format(most=10**9) + ")",
        # One step of SQLite that would take hours.
        "SELECT instr(hex(zeroblob(20000000)), hex(zeroblob(10000000)) || 'x')",
    ],
    ids=["steps", "nested", "one step"],
)
def test_a_query_that_takes_too_long_is_stopped_whatever_it_does(views: Views, sql: str) -> None:
    with pytest.raises(InvalidQuery, match=r"The query took longer than 0\.2 s"):
        views.query(sql, seconds=0.2)
    assert views.query("SELECT url FROM hits").rows == [("shop",)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT randomblob(900000000)",
        "SELECT zeroblob(900000000)",
        "SELECT length(hex(randomblob(200000000)))",
        "SELECT printf('%900000000d', 1)",
        "SELECT hex(randomblob(90000000)), hex(randomblob(90000000))",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t LIMIT 999) "
        "SELECT group_concat(hex(zeroblob(1000000))) FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) "
        "SELECT hex(zeroblob(1000000)) FROM t",
    ],
)
def test_a_query_that_takes_too_much_memory_is_refused(views: Views, sql: str) -> None:
    with pytest.raises(InvalidQuery, match="needs more than 256 MiB of memory"):
        views.query(sql, limit=None, seconds=None)
    assert views.query("SELECT url FROM hits").rows == [("shop",)]


def test_a_sort_larger_than_memory_is_done_on_disk(views: Views) -> None:
    sql = (
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 400) "
        "SELECT n FROM t ORDER BY hex(randomblob(500000)) || n LIMIT 1000"
    )
    assert len(views.query(sql, seconds=None).rows) == 400


def test_a_query_costs_nobody_else_in_the_process(views: Views) -> None:
    before = apsw.hard_heap_limit(-1)
    with pytest.raises(InvalidQuery):
        views.query("SELECT randomblob(900000000)")
    assert apsw.hard_heap_limit(-1) == before == 0


def test_two_queries_at_once_are_refused(views: Views) -> None:
    with pytest.raises(InvalidQuery, match="several queries"):
        views.query("SELECT 1; SELECT 2")


def test_a_query_process_that_was_killed_is_started_again(views: Views) -> None:
    views.query("SELECT 1")
    process = views._asker._process
    assert process is not None
    os.kill(process.pid, 9)
    process.wait()
    with pytest.raises(InvalidQuery):
        views.query("SELECT 1")
    assert views.query("SELECT 1").rows == [(1,)]


def test_a_value_that_sqlite_cannot_hold_is_refused(views: Views) -> None:
    with pytest.raises(InvalidQuery, match="cannot be given"):
        views.query("SELECT ?", (object(),))
