"""Unsupported queries are refused, with their line and column and an alternative."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidPipeline, InvalidWindow

LATENESS = hr.Lateness(delay=timedelta(seconds=10), grace=timedelta(minutes=1))

app = hr.App("test")
SCHEMA = "url string, user string, ms int, tags array<string>, at timestamp"
views = app.topic("views", schema=SCHEMA, event_time="at")
more = app.topic("more", schema=SCHEMA, event_time="at")
hits = hr.aggregate(
    views,
    by="url",
    window=hr.tumbling(timedelta(minutes=1)),
    lateness=LATENESS,
    n=hr.count(),
)
totals = hr.aggregate(
    views, by="url", window=hr.running(hr.FOREVER), lateness=LATENESS, n=hr.count()
)

STREAMS: dict[str, Any] = {
    "views": views, "more": more, "hits": hits, "totals": totals, "late": hits.late,
}  # fmt: skip
MARK = "^"
"""A mark before the mistake in a query. Spark SQL does not use this character."""


def refused(marked: str, lateness: hr.Lateness | None = None) -> InvalidPipeline:
    """The error that refuses a query, which must be at the mark."""
    before, _, after = marked.partition(MARK)
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    query = before + after
    with pytest.raises(InvalidPipeline) as caught:
        hr.sql(query, **STREAMS, lateness=lateness)
    quoted = query.splitlines()[line - 1].strip()
    assert f"Line {line}, column {column} of the SQL: {quoted}" in caught.value.hint
    return caught.value


ROWS = [
    ("SELECT url\nFROM views\nORDER BY url", "has no ORDER BY", "ORDER", "views query"),
    ("SELECT url FROM views LIMIT 3", "no LIMIT", "LIMIT", "views query"),
    ("SELECT DISTINCT url FROM views", "remember every row", "DISTINCT", "Group by"),
    ("SELECT * FROM views JOIN more ON 1 = 1", "condition of this join", "1 = 1", "BETWEEN"),
    ("SELECT * FROM views, more", "no columns that are equal", ", more", "a.key = b.key"),
    ("SELECT url FROM views UNION SELECT url FROM more", "every row", "UNION", "Write UNION ALL"),
    ("SELECT url FROM views EXCEPT SELECT url FROM more", "every row", "EXCEPT", "UNION ALL"),
    ("SELECT * FROM views UNION ALL SELECT url FROM more", "the same", "SELECT url", "one order"),
    ("SELECT url, ms FROM views UNION ALL SELECT ms, url FROM more", "in the same order",
     "SELECT ms", "BY NAME"),
    ("SELECT url FROM views WHERE url IN (SELECT url FROM more)", "part of an expression",
     "SELECT url FROM more", "JOIN"),
    ("SELECT max(ms) OVER (ORDER BY at) AS m FROM views", "order of rows", "OVER", "SLIDE"),
    ("SELECT url FROM wiews", "no stream 'wiews'", "wiews", "Did you mean 'views'?"),
    ("SELECT url FROM totals", "none is final", "totals", "Use running(expiry)"),
    ("SELECT url FROM late", "a side output", "late", "app.publish('late', ...)"),
    ("SELECT url FROM hits UNION ALL SELECT * FROM hits", "the same", "SELECT *", "one order"),
    ("SELECT 1 AS one", "which stream", "SELECT", "FROM"),
    ("SELECT upper(url) FROM views", "needs a name", "upper", "AS name"),
    ("SELECT *, url FROM views", "in * already", "url", "Name all"),
    ("SELECT url, * FROM views", "to be the first", "*", "front"),
    ("SELECT * EXCEPT (url) FROM views", "cannot be selected", "*", "name the columns"),
    ("SELECT url,\n  upper(usr) AS who\nFROM views", "no column 'usr'", "usr", "'user'?"),
    ("SELECT url FROM views\nWHERE ms > 1\n  AND mss < 9", "no column 'mss'", "mss", "'ms'?"),
    ("SELECT url FROM views v WHERE v.mss > 1", "no column 'mss' in v", "v.mss", "'v.ms'?"),
    ("SELECT url FROM views TABLESAMPLE (10 ROWS)", "cannot follow", "TABLE", "Leave it out"),
    ("SELECT EXPLODE(tags) FROM views", "under one name", "EXPLODE", "AS name"),
    ("SELECT EXPLODE_OUTER(tags) AS tag FROM views", "under one name", "EXPLODE", "AS name"),
    ("SELECT EXPLODE(tags) AS a, EXPLODE(tags) AS b FROM views", "at once", "EXPLODE(tags) AS b",
     "a subquery"),
    ("SELECT EXPLODE(tags) AS url FROM views", "a column 'url' already", "tags", "another name"),
    ("SELECT * FROM views LATERAL VIEW OUTER EXPLODE(tags) AS tag", "lateral view", "VIEW", "Use"),
    ("SELECT * FROM views LATERAL VIEW EXPLODE(tgs) AS tag", "no column 'tgs'", "tgs", "'tags'?"),
    ("SELECT COUNT(*) AS n FROM views", "never be final", "COUNT", "Group by a window"),
    ("INSERT INTO views SELECT * FROM more", "made by a SELECT", "INSERT", "Begin with"),
    ("SELECT url\nFROM views WHERE", "missing after 'WHERE'", "WHERE", "Spark SQL"),
    ("SELECT url url url FROM views", "'url' is not expected", "url FROM", "Spark SQL"),
    ("SELECT lower(url FROM views", "not closed", "(", "Close it"),
    ("SELECT url, , ms FROM views", "missing beside ','", ", , ms", "Add or remove"),
    ("SELECT url FROM views WHERE ms >", "missing after '>'", ">", "Spark SQL"),
    ("SELECT url) FROM views", "closes none", ")", "Remove it"),
    ("SELECT url\nFROM views WHERE user = 'ann", "does not end", "FROM", "Close it"),
    ("WITH RECURSIVE a AS (SELECT * FROM views) SELECT * FROM a", "WITH", "RECURSIVE", "name AS"),
]  # fmt: skip

BY = "SELECT url, COUNT(*) AS n FROM views GROUP BY url"
WINDOW = "TUMBLE(at, INTERVAL '1 minute')"
GROUPS = [
    (BY, "never be final", "url;", "TUMBLE, HOP"),
    (f"{BY}, TUMBLE(ms, INTERVAL 1 DAY)", "and 'ms' is not it", "ms", "Write at"),
    (f"{BY}, TUMBLE(date(at), INTERVAL 1 DAY)", "is not it", "date", "Write at"),
    (f"{BY}, TUMBLE(at, 5)", "'5' is not an interval", "5", "Write TUMBLE("),
    (f"{BY}, TUMBLE(at, INTERVAL '1 month')", "'1 month' is not", "INTERVAL", "Months"),
    (f"{BY}, TUMBLE(at)", "is not a window", "TUMBLE", "Write TUMBLE("),
    (f"{BY}, HOP(at, INTERVAL 1 DAY, INTERVAL 2 DAYS)", "leave gaps", "HOP", "at most the size"),
    (f"{BY}, {WINDOW}, SESSION(at, INTERVAL 1 DAY)", "two windows", "SESSION", "one of them"),
    (f"{BY}, {WINDOW} HAVING n > 3", "HAVING", "HAVING", "views query"),
    (f"{BY}, usr, {WINDOW}", "no column 'usr'", "usr", "'user'?"),
    (f"{BY}, lower(user), {WINDOW}", "has no name", "lower", "AS name"),
    (f"SELECT url, COUNT(*) AS n FROM views GROUP BY 1, {WINDOW}", "its name", "1,", "number"),
    (f"SELECT url, ms, COUNT(*) AS n FROM views GROUP BY url, {WINDOW}", "neither", "ms", "Add it"),
    (f"SELECT *, COUNT(*) AS n FROM views GROUP BY url, {WINDOW}", "neither", "*, C", "Add it"),
    (f"SELECT url, 1 + COUNT(*) FROM views GROUP BY url, {WINDOW}", "a name", "1 +", "AS name"),
    (f"SELECT url FROM views GROUP BY url, {WINDOW}", "needs an aggregate", "SELECT", "COUNT(*)"),
    (f"SELECT url, SUM(mss) AS n FROM views GROUP BY url, {WINDOW}", "'mss'", "mss", "'ms'?"),
    (f"SELECT url, FIRST(ms, true) AS n FROM views GROUP BY url, {WINDOW}", "nulls", "FIRST", "BY"),
    (f"SELECT url, FIRST(ms) IGNORE NULLS AS n FROM views GROUP BY url, {WINDOW}", "nulls",
     "FIRST", "MIN_BY"),
    (f"SELECT url, QUANTILE(ms, 9) AS n FROM views GROUP BY url, {WINDOW}", "between",
     "QUANTILE", "Use 0.95"),
    (f"SELECT lower(url) AS user, COUNT(*) AS n FROM views GROUP BY user, {WINDOW}", "could be",
     "lower", "that no column has"),
    (f"SELECT COUNT(*) AS n FROM views GROUP BY n, {WINDOW}", "cannot be in GROUP BY",
     "n, T", "known at the window's end"),
    (f"SELECT url, COUNT(*) AS window FROM views GROUP BY url, {WINDOW}", "be called 'window'",
     "COUNT", "another name"),
    (f"SELECT url || 'A' AS k, COUNT(*) AS n FROM views GROUP BY url || 'a', {WINDOW}", "no name",
     "url ||", "AS name"),
    (f"SELECT url, COUNT(*) AS n, SUM(ms) AS n FROM views GROUP BY url, {WINDOW}", "two columns",
     "SUM", "different"),
    (f"SELECT url, COUNT(*) AS n FROM ({BY}, {WINDOW}) GROUP BY url, {WINDOW}", "'at' is not it",
     "at, INTERVAL", "Write window_time"),
    (f"{BY}, {WINDOW} UNION ALL {BY}, RUNNING(at, FOREVER)", "none is final", BY,
     "Use running(expiry)"),
    (f"{BY}, {WINDOW} WITH ROLLUP", "of which keys", "TUMBLE", "ROLLUP (key"),
    (f"SELECT url, GROUPING(url) AS g, COUNT(*) AS n FROM views GROUP BY CUBE (url), {WINDOW}",
     "a column of the result", "GROUPING", "Write grouping_id"),
    (f"SELECT url, COUNT(url) AS n FROM views GROUP BY ROLLUP (url), {WINDOW}", "null outside",
     None, "Copy the column"),
    ("SELECT url, EXPLODE(tags) AS t, COUNT(*) AS n FROM views GROUP BY url, " + WINDOW,
     "before rows are grouped", "EXPLODE", "LATERAL VIEW"),
    (f"SELECT url, SUM(n) AS n FROM totals GROUP BY url, {WINDOW}", "none is final", "totals",
     "Use running(expiry)"),
    ("SELECT url, SUM(n) AS n FROM (SELECT url, n FROM hits) GROUP BY url, "
     "TUMBLE(window_time, INTERVAL '1 hour')", "not among the selected columns", "window_time",
     "Of a window it is window_time"),
    ("SELECT url, SUM(n) AS n FROM hits GROUP BY url, window_start, "
     "TUMBLE(window_time, INTERVAL '1 hour')", "Two columns have the same name", None, ""),
    ("SELECT url, COUNT(*) AS n FROM (SELECT url, date_trunc('day', at) AS at FROM views) "
     f"GROUP BY url, {WINDOW}", "not among the selected columns", "at, INTERVAL", "as it is"),
]  # fmt: skip


def marked(query: str, at: str | None) -> str:
    """The query with a mark before the last occurrence of `at`, or at its start."""
    start = 0 if at is None else f"{query};".rindex(at)
    return f"{query[:start]}{MARK}{query[start:]}"


@pytest.mark.parametrize(("query", "says", "at", "advises"), ROWS, ids=[row[0] for row in ROWS])
def test_a_query_of_rows_is_refused_at_its_place(
    query: str, says: str, at: str | None, advises: str
) -> None:
    error = refused(marked(query, at))
    assert says in error.message
    assert advises in error.hint


@pytest.mark.parametrize(("query", "says", "at", "advises"), GROUPS, ids=[row[0] for row in GROUPS])
def test_a_query_of_groups_is_refused_at_its_place(
    query: str, says: str, at: str | None, advises: str
) -> None:
    error = refused(marked(query, at), LATENESS)
    assert says in error.message
    assert advises in error.hint


def test_the_error_names_the_line_of_python_too() -> None:
    with pytest.raises(InvalidPipeline) as caught:
        hr.sql("SELECT usr FROM views", views=views)
    assert Path(caught.value.details["file"]).name == "test_sql_refusals.py"
    assert 'hr.sql("SELECT usr FROM views", views=views)' in caught.value.hint


def test_how_late_a_row_may_be_has_to_be_said() -> None:
    error = refused(f"{BY}, {MARK}{WINDOW}")
    assert "how late a row may be" in error.message
    assert "lateness=Lateness" in error.hint


@pytest.mark.parametrize("stream", [views, hits])
def test_lateness_without_a_window_in_the_query_is_refused(stream: hr.Stream) -> None:
    with pytest.raises(InvalidPipeline, match="the query has none"):
        hr.sql("SELECT url FROM views", views=stream, lateness=LATENESS)


def test_two_delays_are_refused() -> None:
    spans: Any = {"lateness": LATENESS, "delay": timedelta(0)}
    with pytest.raises(InvalidPipeline, match="lateness has a delay already"):
        hr.sql(f"{BY}, {WINDOW}", views=views, **spans)


@pytest.mark.parametrize("text", ["", "-- nothing", "SELECT * FROM views; SELECT * FROM views"])
def test_there_is_one_query_in_a_call(text: str) -> None:
    with pytest.raises(InvalidPipeline, match="takes one query"):
        hr.sql(text, views=views)


def test_a_window_that_makes_no_sense_keeps_its_kind() -> None:
    assert isinstance(refused(f"{BY}, {MARK}SLIDE(at, INTERVAL 0 DAYS)", LATENESS), InvalidWindow)


BROKEN = {
    "ms >": "Something is missing after '>'",
    "url = 'x": "a quote or a comment does not end",
    "ms ms ms": "'ms' is not expected here",
    "lower(url": "')' is missing before",
    "": "There is no expression",
}


@pytest.mark.parametrize("text", BROKEN)
def test_an_expression_is_refused_in_our_words_and_not_in_those_of_a_parser(text: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        hr.filter(views, text)
    assert BROKEN[text] in caught.value.message
    for word in ("sqlglot", "<class", "Required keyword", "Expecting", "Invalid expression"):
        assert word not in str(caught.value)
