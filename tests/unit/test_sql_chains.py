"""A query over results is the chain of Python: the same steps, names and definitions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidPipeline
from headrace.pipeline.stream import Stream
from headrace.plan.steps import definition_of, steps_of

SECOND, MINUTE, HOUR = (timedelta(seconds=n) for n in (1, 60, 3600))
LATENESS = hr.Lateness(delay=MINUTE, grace=MINUTE)
LAST_MOMENT = "window_end - INTERVAL 1 MICROSECOND"

app = hr.App("test")
clicks = app.topic("clicks", schema="page string, ms int, at timestamp", event_time="at")
more = app.topic("more", schema="page string, ms int, at timestamp", event_time="at")
pages = hr.table(
    app.topic("pages", schema="page string, team string, since timestamp", event_time="since"),
    key="page",
)


def counted(
    stream: Stream = clicks, size: timedelta = MINUTE, by: Any = "page", **more: Any
) -> hr.Aggregation:
    made = more or {"n": hr.count()}
    return hr.aggregate(stream, by=by, window=hr.tumbling(size), lateness=LATENESS, **made)


def once(stream: Stream = clicks) -> Stream:
    return hr.deduplicate(stream, by="page", ttl=HOUR, delay=MINUTE)


def known(stream: Stream = clicks) -> Stream:
    return hr.enrich(stream, pages, on="page", wait=MINUTE)


def joined(left: Stream, right: Stream, **given: Any) -> Stream:
    return hr.join(left, right, **{"on": "page", "after": HOUR, "delay": MINUTE, **given})


minutes = counted()
sliding = hr.aggregate(
    clicks, by="page", window=hr.sliding(MINUTE), lateness=LATENESS, n=hr.count()
)
STREAMS: dict[str, Any] = {
    "clicks": clicks, "more": more, "pages": pages, "minutes": minutes, "sliding": sliding,
    "once": once(), "known": known(),
}  # fmt: skip


def same(made: Stream, other: Stream) -> None:
    """Check that both are equal, and so is every step that they are cut into."""
    assert made == other
    cut = []
    for stream in (made, other):
        own = hr.App("a")
        own.publish("out", stream)
        cut.append([(step.name, definition_of(step)) for step in steps_of(own)])
    assert cut[0] == cut[1]


PER_MINUTE = "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page, TUMBLE(at, INTERVAL 1 MINUTE)"
PER_HOUR = "GROUP BY page, TUMBLE(window_time, INTERVAL 1 HOUR)"
ROWS: dict[str, Callable[[], Stream]] = {
    "SELECT * FROM minutes": lambda: minutes,
    "SELECT page, n * 2 AS twice FROM minutes WHERE n > 1":
        lambda: hr.select(hr.filter(minutes, "n > 1"), "page", twice="n * 2"),
    "SELECT *, window_time FROM minutes AS m WHERE m.n > 1":
        lambda: hr.derive(hr.filter(minutes, "n > 1"), window_time=LAST_MOMENT),
    "SELECT page, m.window_time AS t FROM minutes AS m":
        lambda: hr.select(minutes, "page", t=LAST_MOMENT),
    "SELECT page, window_time AS t FROM sliding":
        lambda: hr.select(sliding, "page", t="window_end"),
    "SELECT page, n FROM minutes UNION ALL SELECT page, ms AS n FROM once":
        lambda: hr.merge(hr.select(minutes, "page", "n"), hr.select(once(), "page", n="ms")),
    "SELECT * FROM known WHERE team IS NOT NULL":
        lambda: hr.filter(known(), "team IS NOT NULL"),
}  # fmt: skip


@pytest.mark.parametrize("query", ROWS)
def test_results_are_selected_and_merged(query: str) -> None:
    same(hr.sql(query, **STREAMS), ROWS[query]())


WINDOWS: dict[str, Callable[[], Stream]] = {
    f"SELECT page, SUM(n) AS n FROM minutes {PER_HOUR}":
        lambda: counted(minutes, HOUR, n=hr.sum("n")),
    f"SELECT page, SUM(n) AS n FROM ({PER_MINUTE}) {PER_HOUR}":
        lambda: counted(minutes, HOUR, n=hr.sum("n")),
    f"WITH m AS ({PER_MINUTE}) SELECT page, SUM(n) AS n FROM TABLE(TUMBLE(TABLE m, "
    "DESCRIPTOR(window_time), INTERVAL 1 HOUR)) WHERE n > 1 GROUP BY page, window_start":
        lambda: counted(hr.filter(minutes, "n > 1"), HOUR, n=hr.sum("n")),
    "SELECT page, SUM(n) AS n, MIN(window_start) AS since FROM TABLE(TUMBLE(TABLE minutes, "
    "INTERVAL 1 HOUR)) GROUP BY page, window_start":
        lambda: counted(minutes, HOUR, n=hr.sum("n"), since=hr.min("window_start")),
    "SELECT page, COUNT(*) AS n FROM sliding GROUP BY page, TUMBLE(window_end, INTERVAL 1 HOUR)":
        lambda: counted(sliding, HOUR),
    f"SELECT page, SUM(twice) AS n FROM (SELECT *, n * 2 AS twice FROM minutes) {PER_HOUR}":
        lambda: counted(hr.derive(minutes, twice="n * 2"), HOUR, n=hr.sum("twice")),
    "SELECT page, COUNT(*) AS n FROM (SELECT page, at AS t FROM once) "
    "GROUP BY page, TUMBLE(t, INTERVAL 1 HOUR)":
        lambda: counted(hr.select(once(), "page", t="at"), HOUR),
    "SELECT COUNT(*) AS n FROM minutes GROUP BY page, TUMBLE(window_time, INTERVAL 1 HOUR)":
        lambda: counted(minutes, HOUR),
    f"WITH m AS ({PER_MINUTE}) SELECT page, SUM(n) AS n FROM (SELECT * FROM m UNION ALL "
    f"SELECT * FROM m) {PER_HOUR}":
        lambda: counted(hr.merge(minutes, minutes), HOUR, n=hr.sum("n")),
    "SELECT page, COUNT(*) AS n FROM (SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "
    f"window_start ORDER BY n DESC) AS r FROM minutes) WHERE r <= 3) {PER_HOUR}":
        lambda: counted(hr.top(minutes, 3, by="n"), HOUR),
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY n DESC) AS r "
    f"FROM (SELECT page, SUM(n) AS n FROM minutes {PER_HOUR})) WHERE r <= 3":
        lambda: hr.top(counted(minutes, HOUR, n=hr.sum("n")), 3, by="n"),
}  # fmt: skip


@pytest.mark.parametrize("query", WINDOWS)
def test_a_window_over_results_is_that_of_python(query: str) -> None:
    same(hr.sql(query, **STREAMS, lateness=LATENESS), WINDOWS[query]())


STEPS: dict[str, tuple[dict[str, Any], Callable[[], Stream]]] = {
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY page ORDER BY window_time) AS r "
    "FROM minutes) WHERE r = 1":
        ({"ttl": HOUR, "delay": MINUTE}, lambda: once(minutes)),
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY page ORDER BY at) AS r FROM known) "
    "WHERE r = 1":
        ({"ttl": HOUR, "delay": MINUTE}, lambda: once(known())),
    "SELECT * FROM minutes m LEFT JOIN pages FOR SYSTEM_TIME AS OF m.window_time AS p "
    "ON m.page = p.page":
        ({"wait": MINUTE}, lambda: known(minutes)),
    "SELECT * FROM minutes m JOIN once o ON m.page = o.page "
    "AND o.at BETWEEN m.window_time AND m.window_time + INTERVAL 1 HOUR":
        ({"delay": MINUTE}, lambda: joined(minutes, once())),
    "SELECT m.page, m.n, o.ms FROM minutes m JOIN once o ON m.page = o.page "
    "AND o.at BETWEEN m.window_time AND m.window_time + INTERVAL 1 HOUR WHERE m.n > 1":
        ({"delay": MINUTE}, lambda: joined(
            hr.select(hr.filter(minutes, "n > 1"), "page", "n"), hr.select(once(), "page", "ms"))),
    "SELECT page, n - ms AS gap FROM (SELECT m.page, m.n, o.ms FROM minutes m JOIN once o "
    "ON m.page = o.page AND o.at = m.window_time)":
        ({"delay": MINUTE}, lambda: hr.select(
            joined(hr.select(minutes, "page", "n"), hr.select(once(), "page", "ms"),
                   after=timedelta(0)),
            "page", gap="n - ms")),
    "SELECT j.page, j.ms, o.at AS seen FROM (SELECT c.page, c.ms FROM clicks c JOIN more m "
    "ON c.page = m.page AND m.at = c.at) j JOIN once o ON j.page = o.page AND o.at BETWEEN "
    "joined_at AND joined_at + INTERVAL 1 HOUR":
        ({"delay": MINUTE}, lambda: joined(
            hr.select(joined(
                hr.select(clicks, "page", "ms"), hr.select(more, "page"), after=timedelta(0)),
                "page", "ms"),
            hr.select(once(), "page", seen="at"))),
}  # fmt: skip


@pytest.mark.parametrize("query", STEPS)
def test_joins_lookups_and_duplicates_of_results_are_those_of_python(query: str) -> None:
    spans, wanted = STEPS[query]
    same(hr.sql(query, **STREAMS, **spans), wanted())


def test_settings_are_those_of_every_step_in_the_query() -> None:
    query = (
        "SELECT team, COUNT(*) AS n FROM (SELECT * FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY page ORDER BY at) AS r FROM clicks) WHERE r = 1) c LEFT JOIN pages FOR "
        "SYSTEM_TIME AS OF c.at AS p ON c.page = p.page"
    )
    around = f"SELECT team, COUNT(*) AS n FROM ({query.replace('team, COUNT(*) AS n', '*')}) "
    made = hr.sql(
        f"{around} GROUP BY team, TUMBLE(at, INTERVAL 1 MINUTE)",
        **STREAMS, lateness=LATENESS, ttl=HOUR, wait=MINUTE,
    )  # fmt: skip
    same(made, counted(known(once()), by="team"))


@pytest.mark.parametrize("name", ["delay", "ttl", "wait"])
def test_a_setting_of_a_step_before_the_query_is_not_one_of_the_query(name: str) -> None:
    spans: dict[str, Any] = {name: MINUTE}
    with pytest.raises(InvalidPipeline, match=f"does not use '{name}'"):
        hr.sql("SELECT page FROM once UNION ALL SELECT page FROM known", **STREAMS, **spans)


CASCADE = """\
CREATE TABLE bid (bidtime TIMESTAMP(3), price DECIMAL(10, 2), supplier_id STRING,
    WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND) WITH ('connector' = 'kafka');

CREATE VIEW window1 AS
SELECT window_start AS window_5mintumble_start, window_end AS window_5mintumble_end,
       window_time AS rowtime, SUM(price) AS partial_price
  FROM TABLE(
    TUMBLE(TABLE bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES))
  GROUP BY supplier_id, window_start, window_end, window_time;

CREATE VIEW window2 AS
SELECT window_start, window_end, SUM(partial_price) AS total_price
  FROM TABLE(
      TUMBLE(TABLE window1, DESCRIPTOR(rowtime), INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end;
"""


def loaded(path: Path, text: str) -> hr.App:
    (path / "shop.sql").write_text(text)
    return hr.load_sql(path / "shop.sql")


def check_same(made: hr.App, other: hr.App) -> None:
    steps = [[(s.name, definition_of(s), s.late) for s in steps_of(one)] for one in (made, other)]
    assert steps[0] == steps[1]


def bids(app: hr.App) -> hr.Aggregation:
    bid = app.topic(
        "bid",
        schema="bidtime timestamp, price decimal(10, 2), supplier_id string",
        event_time="bidtime",
    )
    return hr.aggregate(
        bid,
        by="supplier_id",
        window=hr.tumbling(5 * MINUTE),
        lateness=hr.Lateness(delay=SECOND, grace=timedelta(0)),
        partial_price=hr.sum("price"),
    )


@pytest.mark.parametrize("kind", ["VIEW", "STREAM"])
def test_flinks_cascade_of_windows_is_the_chain_of_python(tmp_path: Path, kind: str) -> None:
    same = hr.App("shop")
    window1 = hr.select(
        bids(same),
        window_5mintumble_start="window_start",
        window_5mintumble_end="window_end",
        rowtime=LAST_MOMENT,
        partial_price="`partial_price`",
        supplier_id="`supplier_id`",
    )
    if kind == "VIEW":
        same.view("window1", window1, key=["supplier_id", "window_5mintumble_start"])
    window2 = hr.aggregate(
        window1,
        by=(),
        window=hr.tumbling(10 * MINUTE),
        lateness=hr.Lateness(delay=timedelta(0), grace=timedelta(0)),
        total_price=hr.sum("partial_price"),
    )
    same.view("window2", window2)
    same.publish("late", window1.input.late)  # type: ignore[attr-defined]
    text = CASCADE.replace("VIEW window1", f"{kind} window1")
    made = loaded(tmp_path, f"{text}PUBLISH LATE OF window1 TO 'late';")
    check_same(made, same)
    assert made.views["window2"].stream == window2


def test_the_key_of_a_view_keeps_its_columns_under_other_names(tmp_path: Path) -> None:
    text = CASCADE.replace("supplier_id, window_start", "supplier_id").replace(
        "window_start AS window_5mintumble_start, ", "supplier_id, "
    )
    view = loaded(tmp_path, text).views["window1"]
    assert view.key == ("supplier_id", "window_start")
    assert view.stream.columns == (
        "supplier_id", "window_5mintumble_end", "rowtime", "partial_price", "window_start",
    )  # fmt: skip


CHAIN = """\
CREATE TOPIC clicks (page STRING, ms INT, at TIMESTAMP) WITH (event_time = 'at');
CREATE STREAM per_minute WITH (delay = '5 minutes', grace = '1 minute') AS
SELECT page, COUNT(*) AS n FROM clicks GROUP BY page, TUMBLE(at, INTERVAL 1 MINUTE);
CREATE VIEW per_hour WITH (delay = '0 seconds', grace = '0 seconds', emit = 'final') AS
SELECT page, MAX(n) AS busiest FROM per_minute GROUP BY page, TUMBLE(window_time, INTERVAL 1 HOUR);
CREATE VIEW busy AS SELECT page, window_start AS since, n FROM per_minute WHERE n > 100;
CREATE VIEW last_seen WITH (key = 'page') AS SELECT page, at FROM clicks;
PUBLISH LATE OF per_minute TO 'clicks.late';
PUBLISH LATE OF per_hour TO 'minutes.late';
"""


def test_each_statement_of_a_file_has_its_own_lateness(tmp_path: Path) -> None:
    nothing = timedelta(0)
    same = hr.App("shop")
    clicks = same.topic("clicks", schema="page string, ms int, at timestamp", event_time="at")
    per_minute = hr.aggregate(
        clicks, by="page", window=hr.tumbling(MINUTE), lateness=hr.Lateness(5 * MINUTE, MINUTE),
        n=hr.count(),
    )  # fmt: skip
    per_hour = hr.aggregate(
        per_minute, by="page", window=hr.tumbling(HOUR), lateness=hr.Lateness(nothing, nothing),
        emit="final", busiest=hr.max("n"),
    )  # fmt: skip
    busy = hr.select(hr.filter(per_minute, "n > 100"), page="`page`", since="window_start", n="`n`")
    same.view("per_hour", per_hour)
    same.view("busy", busy, key=["page", "since"])
    same.view("last_seen", hr.select(clicks, "page", "at"), key="page")
    same.publish("clicks.late", per_minute.late)
    same.publish("minutes.late", per_hour.late)
    check_same(loaded(tmp_path, CHAIN), same)


WATERMARKED = """\
CREATE TABLE clicks (page STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND);
CREATE TABLE pages (page STRING, team STRING, since TIMESTAMP(3),
    WATERMARK FOR since AS since - INTERVAL '1' SECOND, PRIMARY KEY (page) NOT ENFORCED);
CREATE STREAM known WITH (wait = '1 minute') AS
SELECT * FROM clicks c LEFT JOIN pages FOR SYSTEM_TIME AS OF c.at AS p ON c.page = p.page;
CREATE STREAM firsts WITH (ttl = '1 day') AS
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY page ORDER BY at) AS r FROM known)
WHERE r = 1;
CREATE VIEW counts AS
SELECT team, COUNT(*) AS n FROM firsts GROUP BY team, TUMBLE(at, INTERVAL 1 HOUR);
"""


def test_a_watermark_is_the_delay_of_each_step_of_a_chain(tmp_path: Path) -> None:
    counts = loaded(tmp_path, WATERMARKED).views["counts"].stream
    assert isinstance(counts, hr.Aggregation)
    assert counts.lateness == hr.Lateness(delay=65 * SECOND, grace=timedelta(0))
    last = WATERMARKED.replace("ORDER BY at)", "ORDER BY at DESC)")
    with pytest.raises(InvalidPipeline, match="does not say its delay"):
        loaded(tmp_path, last)
