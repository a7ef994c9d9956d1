"""A query declares the same stream as the functions: the same definition, and the same results."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.operators.window.aggregates import Aggregate
from headrace.operators.window.meaning import meaning
from headrace.operators.window.windows import AnyWindow
from headrace.oracle.events import events_of
from headrace.pipeline.stream import Source, Stream
from headrace.plan.steps import Step, definition_of, fingerprint
from headrace.testing import scripted_log

MINUTE = timedelta(minutes=1)
LATENESS = hr.Lateness(delay=timedelta(seconds=10), grace=MINUTE)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

app = hr.App("test")
SCHEMA = "url string, user string, ms int, tags array<string>, at timestamp"
views = app.topic("views", schema=SCHEMA, event_time="at")
more = app.topic("more", schema=SCHEMA, event_time="at")


def of(query: str) -> Stream:
    return hr.sql(query, views=views, more=more)


def counted(query: str, emit: Any = "updates") -> hr.Aggregation:
    return hr.sql(query, views=views, more=more, lateness=LATENESS, emit=emit)


def hits(stream: Stream = views, window: AnyWindow | None = None, **kept: Any) -> hr.Aggregation:
    made = {"by": "url", "n": hr.count(), **kept}
    return hr.aggregate(stream, window=window or hr.tumbling(MINUTE), lateness=LATENESS, **made)


STREAMS: list[tuple[str, Callable[[], Stream]]] = [
    ("SELECT * FROM views", lambda: views),
    ("select url, ms from views;", lambda: hr.select(views, "url", "ms")),
    ("SELECT ms, lower(url) AS page FROM views", lambda: hr.select(views, "ms", page="lower(url)")),
    ("SELECT *, ms * 2 AS twice FROM views", lambda: hr.derive(views, twice="ms * 2")),
    ("SELECT * FROM views WHERE ms > 3", lambda: hr.filter(views, "ms > 3")),
    (
        "SELECT * FROM views WHERE url IS DISTINCT FROM user",
        lambda: hr.filter(views, "url IS DISTINCT FROM user"),
    ),
    (
        "SELECT url, ms AS cost FROM views AS v WHERE ms > 3 AND `user` = 'from where'",
        lambda: hr.select(hr.filter(views, "ms > 3 AND `user` = 'from where'"), "url", cost="ms"),
    ),
    (
        "SELECT * FROM views -- all\nWHERE ms > 3 /* slow */\n  AND ms < 9",
        lambda: hr.filter(views, "ms > 3 AND ms < 9"),
    ),
    (
        "SELECT * FROM views UNION ALL SELECT * FROM more WHERE ms > 1",
        lambda: hr.merge(views, hr.filter(more, "ms > 1")),
    ),
    (
        "(SELECT url, ms FROM views) UNION ALL BY NAME (SELECT ms, url FROM more) "
        "UNION ALL SELECT url, ms FROM views",
        lambda: hr.merge(
            hr.select(views, "url", "ms"),
            hr.select(more, "ms", "url"),
            hr.select(views, "url", "ms"),
        ),
    ),
    ("SELECT *, EXPLODE(tags) AS tag FROM views", lambda: hr.explode(views, "tags", into="tag")),
    (
        "SELECT url, EXPLODE(tags) AS tag FROM views WHERE ms > 1",
        lambda: hr.select(
            hr.explode(hr.filter(views, "ms > 1"), "tags", into="tag"), "url", "tag"
        ),
    ),
    (
        "SELECT * FROM views LATERAL VIEW EXPLODE(tags) t AS tag WHERE tag != 'x'",
        lambda: hr.filter(hr.explode(views, "tags", into="tag"), "tag != 'x'"),
    ),
    (
        "SELECT url FROM (SELECT url, ms FROM views) AS inside WHERE ms > 1",
        lambda: hr.select(hr.filter(hr.select(views, "url", "ms"), "ms > 1"), "url"),
    ),
    (
        "WITH slow AS (SELECT * FROM views WHERE ms > 9), both AS (SELECT * FROM slow UNION ALL "
        "SELECT * FROM more) SELECT url FROM both",
        lambda: hr.select(hr.merge(hr.filter(views, "ms > 9"), more), "url"),
    ),
    (
        "SELECT 10L AS ten, -1.5BD AS less, tags[0] AS tag, 'it\\'s' AS it FROM views",
        lambda: hr.select(views, ten="10L", less="-1.5BD", tag="tags[0]", it="'it\\'s'"),
    ),
    (
        "SELECT transform(tags, x -> upper(x)) AS loud FROM views",
        lambda: hr.select(views, loud="transform(tags, x -> upper(x))"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("query", "python"), STREAMS, ids=[query for query, _ in STREAMS])
def test_a_query_is_the_stream_that_the_functions_make(
    query: str, python: Callable[[], Stream]
) -> None:
    assert of(query).definition(str) == python().definition(str)
    assert of(query).columns == python().columns


WINDOWS: list[tuple[str, AnyWindow]] = [
    ("TUMBLE(at, INTERVAL '1 minute')", hr.tumbling(MINUTE)),
    ("tumble(at, INTERVAL 1 MINUTE)", hr.tumbling(MINUTE)),
    ("TUMBLE(at, INTERVAL '1' MINUTE)", hr.tumbling(MINUTE)),
    ("TUMBLE(AT, INTERVAL '1 minute 30 seconds')", hr.tumbling(1.5 * MINUTE)),
    ("TUMBLE(at, INTERVAL '1 day', INTERVAL 23 HOURS)",
     hr.tumbling(timedelta(days=1), offset=timedelta(hours=23))),
    ("HOP(at, INTERVAL '10 minutes', INTERVAL '5 minutes')", hr.hopping(10 * MINUTE, 5 * MINUTE)),
    ("HOP(at, INTERVAL 10 MINUTES, INTERVAL 5 MINUTES, INTERVAL '90 seconds')",
     hr.hopping(10 * MINUTE, 5 * MINUTE, offset=1.5 * MINUTE)),
    ("SLIDE(at, INTERVAL '2.5 minutes')", hr.sliding(2.5 * MINUTE)),
    ("SESSION(at, INTERVAL '1 week')", hr.session(timedelta(weeks=1))),
    ("RUNNING(at, INTERVAL '7 days')", hr.running(timedelta(days=7))),
    ("RUNNING(at, FOREVER)", hr.running(hr.FOREVER)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "window"), WINDOWS, ids=[text for text, _ in WINDOWS])
def test_a_window_function_is_the_window(text: str, window: AnyWindow) -> None:
    made = counted(f"SELECT url, COUNT(*) AS n FROM views GROUP BY url, {text}")
    assert made == hits(window=window)
    assert definition_of(Step("a", "n", made)) == definition_of(Step("a", "n", hits(window=window)))


AGGREGATES = [
    ("COUNT(*)", hr.count()),
    ("count(ms)", hr.count("ms")),
    ("SUM(ms + 1)", hr.sum("ms + 1")),
    ("AVG(ms)", hr.average("ms")),
    ("MIN(coalesce(ms, 0))", hr.min("coalesce(ms, 0)")),
    ("MAX(ms)", hr.max("ms")),
    ("COUNT(DISTINCT user)", hr.distinct("user")),
    ("COUNT(DISTINCT user, url)", hr.expression("COUNT(DISTINCT user, url)")),
    ("SUM(DISTINCT ms)", hr.expression("SUM(DISTINCT ms)")),
    ("APPROX_COUNT_DISTINCT(user)", hr.approx_distinct("user")),
    ("APPROX_COUNT_DISTINCT(user, 0.1)", hr.approx_distinct("user", error=0.1)),
    ("APPROX_PERCENTILE(ms, 0.9)", hr.quantile("ms", 0.9)),
    ("PERCENTILE_APPROX(ms, 0.9)", hr.quantile("ms", 0.9)),
    ("QUANTILE(ms, 0.9)", hr.quantile("ms", 0.9)),
    ("PERCENTILE_APPROX(ms, 0.9, 50)", hr.expression("PERCENTILE_APPROX(ms, 0.9, 50)")),
    ("PERCENTILE(ms, 0.9)", hr.expression("PERCENTILE(ms, 0.9)")),
    ("FIRST(ms)", hr.first("ms")),
    ("last_value(ms)", hr.last("ms")),
    ("SUM(ms) / COUNT(ms)", hr.expression("SUM(ms) / COUNT(ms)")),
    ("COUNT(*) FILTER (WHERE ms > 3)", hr.expression("COUNT(*) FILTER (WHERE ms > 3)")),
    ("bit_or(ms)", hr.expression("bit_or(ms)")),
    ("some_day(ms)", hr.expression("some_day(ms)")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "aggregate"), AGGREGATES, ids=[text for text, _ in AGGREGATES])
def test_an_aggregate_is_the_one_of_its_name_or_else_sparks(
    text: str, aggregate: Aggregate
) -> None:
    made = counted(
        f"SELECT url, {text} AS n FROM views GROUP BY url, TUMBLE(at, INTERVAL 1 MINUTE)"
    )
    assert made == hits(n=aggregate)


def test_keys_go_in_the_order_of_group_by_and_aggregates_in_that_of_select() -> None:
    made = counted(
        "SELECT MAX(ms) AS z, url, window_end, COUNT(*) AS a, user FROM views "
        "GROUP BY user, TUMBLE(at, INTERVAL 1 MINUTE), url"
    )
    assert made.columns == ("user", "url", "window_start", "window_end", "z", "a")
    assert made.by == ("user", "url")


@pytest.mark.parametrize("key", ["lower(url)", "LOWER( url )", "page"])
def test_what_is_grouped_by_can_be_an_expression_that_select_names(key: str) -> None:
    made = counted(
        f"SELECT lower(url) AS page, COUNT(*) AS n FROM views WHERE ms > 1 "
        f"GROUP BY {key}, TUMBLE(at, INTERVAL 1 MINUTE)"
    )
    rows = hr.rekey(hr.filter(views, "ms > 1"), page="lower(url)")
    assert made == hits(rows, by="page")


def test_a_key_may_have_a_name_that_a_function_takes() -> None:
    made = counted(
        "SELECT lower(url) AS stream, COUNT(*) AS n FROM views "
        "GROUP BY stream, TUMBLE(at, INTERVAL 1 MINUTE)"
    )
    assert made.by == ("stream",)


def test_a_window_without_a_key_counts_all_rows() -> None:
    made = counted("SELECT COUNT(*) AS n FROM views GROUP BY TUMBLE(at, INTERVAL 1 MINUTE)")
    assert made == hits(by=[])


def test_the_event_time_is_known_under_its_new_name() -> None:
    made = counted(
        "WITH both AS (SELECT url, at AS moment FROM views UNION ALL "
        "SELECT url, at AS moment FROM more) "
        "SELECT url, COUNT(*) AS n FROM both GROUP BY url, TUMBLE(moment, INTERVAL 1 MINUTE)"
    )
    parts = [hr.select(topic, "url", moment="at") for topic in (views, more)]
    assert made == hits(hr.merge(*parts))


def test_how_a_query_is_laid_out_makes_no_difference() -> None:
    spread = """
        SELECT url,
               SUM(ms
                   + 1) AS n  -- one more
        FROM views
        WHERE ms > 0
          AND ms < 9
        GROUP BY url, TUMBLE(at, INTERVAL '1 minute')
    """
    other = hits(hr.filter(views, "ms > 0 AND ms < 9"), n=hr.sum("ms + 1"))
    assert fingerprint(Step("a", "n", counted(spread))) == fingerprint(Step("a", "n", other))


def test_what_a_query_emits_is_said_in_the_call() -> None:
    query = "SELECT url, COUNT(*) AS n FROM views GROUP BY url, TUMBLE(at, INTERVAL 1 MINUTE)"
    assert counted(query).emit == "updates"
    assert counted(query, emit="final") == hits(emit="final")


@pytest.mark.parametrize("window", [text for text, _ in WINDOWS])
def test_the_oracle_finds_the_same_in_both(window: str) -> None:
    query = (
        "SELECT lower(url) AS page, COUNT(*) AS n, COUNT(DISTINCT user) AS people, LAST(ms) AS ms "
        f"FROM views LATERAL VIEW EXPLODE(tags) t AS tag WHERE ms > 1 GROUP BY page, {window}"
    )
    rows = hr.rekey(hr.filter(hr.explode(views, "tags", into="tag"), "ms > 1"), page="lower(url)")
    python = hr.aggregate(
        rows,
        by="page",
        window=dict(WINDOWS)[window],
        lateness=LATENESS,
        n=hr.count(),
        people=hr.distinct("user"),
        ms=hr.last("ms"),
    )
    found = [_results(made) for made in (counted(query), python)]
    assert found[0] == found[1]
    assert len(found[0][0]) > 1


def _results(made: hr.Aggregation) -> tuple[dict[Any, Any], list[Any], int]:
    with scripted_log(start=NOON + 60 * MINUTE) as log:
        for minute, ms in ((0, 1), (0, 2), (5, 3), (1, 4), (30, 5), (2, 6)):
            log.write(views, *(_view(url, minute, ms) for url in ("/A", "/b")))
        events = events_of(log.log.topic("views").topic, log.records("views"))
    found = meaning(made, events)
    panes = {key: pane.result(made.aggregates) for key, pane in found.panes.items()}
    return panes, [row for _, row, _, _ in found.late], found.filtered


def _view(url: str, minute: int, ms: int) -> dict[str, Any]:
    tags = ["x", "y"] if ms % 2 else ["z"]
    return {"url": url, "user": f"u{ms}", "ms": ms, "tags": tags, "at": NOON + minute * MINUTE}


def test_streams_are_found_whatever_the_case() -> None:
    assert isinstance(of("SELECT * FROM Views"), Source)
