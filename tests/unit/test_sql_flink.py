"""SQL as in Flink and the standard makes the same declaration as Python.

The queries named `flink_...` are copied from Flink's page on window aggregation.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidPipeline
from headrace.operators.window.windows import AnyWindow
from headrace.pipeline.stream import Stream
from headrace.plan.steps import Step, definition_of
from headrace.testing import events_of, meaning, scripted_log

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATENESS = hr.Lateness(delay=SECOND, grace=timedelta(0))

app = hr.App("test")
Bid = app.topic(
    "Bid",
    schema="bidtime timestamp, price decimal(10, 2), item string, supplier_id string",
    event_time="bidtime",
)
events = app.topic("events", schema="user_id string, ts timestamp", event_time="ts")


def of(query: str, **more: Any) -> Stream:
    return hr.sql(query, Bid=Bid, events=events, lateness=LATENESS, **more)


def same(made: Stream, other: Stream) -> None:
    """Check that both are equal, and also their definitions, which decide whether state is kept."""
    assert made == other
    assert definition_of(Step("a", "n", made)) == definition_of(Step("a", "n", other))


def summed(window: AnyWindow, *, by: Any = (), stream: Stream = Bid, **made: Any) -> hr.Aggregation:
    return hr.aggregate(
        stream, by=by, window=window, lateness=LATENESS, **(made or {"sum": hr.sum("price")})
    )


SEED_003 = "SELECT window_start, user_id, COUNT(*) FROM TABLE(TUMBLE(events, INTERVAL '1' MINUTE))"


@pytest.mark.parametrize(
    "group", ["window_start, user_id", "window_start, window_end, user_id", "window_end, user_id"]
)
def test_the_query_of_seed_003_runs_as_it_is_written(group: str) -> None:
    counted = hr.aggregate(
        events, by="user_id", window=hr.tumbling(MINUTE), lateness=LATENESS, count=hr.count()
    )
    same(of(f"{SEED_003} GROUP BY {group}"), counted)
    standard = SEED_003.replace("events,", "TABLE events, DESCRIPTOR(ts),")
    same(of(f"{standard} GROUP BY {group}"), counted)


TEN = "TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)"
FLINK: dict[str, tuple[str, Callable[[], Stream]]] = {
    "flink_tumbling": (
        f"""SELECT window_start, window_end, SUM(price)
  FROM TABLE(
    {TEN})
  GROUP BY window_start, window_end;""",
        lambda: summed(hr.tumbling(10 * MINUTE)),
    ),
    "flink_hopping": (
        """SELECT window_start, window_end, SUM(price)
  FROM TABLE(
    HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end;""",
        lambda: summed(hr.hopping(10 * MINUTE, 5 * MINUTE)),
    ),
    "flink_cumulative": (
        """SELECT window_start, window_end, SUM(price)
  FROM TABLE(
    CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end;""",
        lambda: summed(hr.cumulative(10 * MINUTE, step=2 * MINUTE)),
    ),
    "flink_session_by_key": (
        """SELECT window_start, window_end, supplier_id, SUM(price) AS total_price
  FROM TABLE(
    SESSION(TABLE Bid PARTITION BY supplier_id, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES))
  GROUP BY window_start, window_end, supplier_id;""",
        lambda: summed(
            hr.session(2 * MINUTE), by="supplier_id", total_price=hr.sum("price")
        ),
    ),
    "flink_session": (
        """SELECT window_start, window_end, SUM(price) AS total_price
  FROM TABLE(
    SESSION(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES))
  GROUP BY window_start, window_end;""",
        lambda: summed(hr.session(2 * MINUTE), total_price=hr.sum("price")),
    ),
    "flink_grouping_sets": (
        f"""SELECT window_start, window_end, supplier_id, SUM(price) as price
  FROM TABLE(
    {TEN})
  GROUP BY window_start, window_end, GROUPING SETS ((supplier_id), ());""",
        lambda: by_sets(hr.grouping_sets("supplier_id", [])),
    ),
    "flink_rollup": (
        f"""SELECT window_start, window_end, supplier_id, SUM(price) as price
FROM TABLE(
    {TEN})
GROUP BY window_start, window_end, ROLLUP (supplier_id);""",
        lambda: by_sets(hr.rollup("supplier_id")),
    ),
    "flink_cube": (
        f"""SELECT window_start, window_end, item, supplier_id, SUM(price) as price
  FROM TABLE(
    {TEN})
  GROUP BY window_start, window_end, CUBE (supplier_id, item);""",
        lambda: by_sets(hr.cube("supplier_id", "item")),
    ),
    "flink_cube_as_grouping_sets": (
        f"""SELECT window_start, window_end, item, supplier_id, SUM(price) as price
  FROM TABLE(
    {TEN})
  GROUP BY window_start, window_end, GROUPING SETS (
      (supplier_id, item),
      (supplier_id      ),
      (             item),
      (                 )
)""",
        lambda: by_sets(hr.cube("supplier_id", "item")),
    ),
}  # fmt: skip


def by_sets(sets: hr.GroupingSets) -> Stream:
    return summed(hr.tumbling(10 * MINUTE), by=sets, price=hr.sum("price"))


@pytest.mark.parametrize("name", FLINK)
def test_a_query_of_flinks_page_is_the_aggregation_of_python(name: str) -> None:
    query, python = FLINK[name]
    same(of(query), python())


WINDOWS: list[tuple[str, AnyWindow]] = [
    (TEN, hr.tumbling(10 * MINUTE)),
    ("TUMBLE(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), SIZE => INTERVAL '10' MINUTES)",
     hr.tumbling(10 * MINUTE)),
    ("TUMBLE(SIZE => INTERVAL '10' MINUTES, TIMECOL => DESCRIPTOR(bidtime), DATA => TABLE Bid)",
     hr.tumbling(10 * MINUTE)),
    ("TUMBLE((SELECT * FROM Bid), DESCRIPTOR(bidtime), INTERVAL 10 MINUTES)",
     hr.tumbling(10 * MINUTE)),
    ("TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES, INTERVAL '1' MINUTE)",
     hr.tumbling(10 * MINUTE, offset=MINUTE)),
    ("TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES, INTERVAL '-1' MINUTE)",
     hr.tumbling(10 * MINUTE, offset=9 * MINUTE)),
    ("TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES, -INTERVAL '21' MINUTE)",
     hr.tumbling(10 * MINUTE, offset=9 * MINUTE)),
    ("TUMBLE(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), SIZE => INTERVAL 10 MINUTES, "
     '"OFFSET" => INTERVAL -1 MINUTE)', hr.tumbling(10 * MINUTE, offset=9 * MINUTE)),
    ("HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES, "
     "INTERVAL '-1' MINUTE)", hr.hopping(10 * MINUTE, 5 * MINUTE, offset=4 * MINUTE)),
    ("HOP(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), SLIDE => INTERVAL '5' MINUTES, "
     "SIZE => INTERVAL '10' MINUTES)", hr.hopping(10 * MINUTE, 5 * MINUTE)),
    ("CUMULATE(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), STEP => INTERVAL '2' MINUTES, "
     "SIZE => INTERVAL '10' MINUTES)", hr.cumulative(10 * MINUTE, step=2 * MINUTE)),
    ("CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' HOUR, INTERVAL '1' DAY, "
     "INTERVAL '-8' HOURS)", hr.cumulative(24 * HOUR, step=HOUR, offset=16 * HOUR)),
    ("SESSION(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), GAP => INTERVAL '5' MINUTES)",
     hr.session(5 * MINUTE)),
    ("SLIDE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES)", hr.sliding(5 * MINUTE)),
    ("RUNNING(TABLE Bid, DESCRIPTOR(bidtime), FOREVER)", hr.running(hr.FOREVER)),
]  # fmt: skip


@pytest.mark.parametrize(("call", "window"), WINDOWS, ids=[call for call, _ in WINDOWS])
def test_a_window_function_of_a_table_is_the_window(call: str, window: AnyWindow) -> None:
    query = f"SELECT SUM(price) FROM TABLE({call}) AS w GROUP BY w.window_start, window_end"
    made = of(query)
    assert isinstance(made, hr.Aggregation)
    assert made.window == window
    same(of(query.replace(f"TABLE({call})", call)), made)
    if "(SELECT" not in call:
        same(made, summed(window))


def test_an_offset_in_group_by_has_either_sign() -> None:
    query = "SELECT SUM(price) FROM Bid GROUP BY TUMBLE(bidtime, INTERVAL 1 DAY, INTERVAL -1 HOUR)"
    same(of(query), summed(hr.tumbling(24 * HOUR, offset=23 * HOUR)))


def test_sessions_of_several_keys_are_partitioned_by_all_of_them() -> None:
    query = (
        "SELECT item, supplier_id, SUM(price) FROM TABLE(SESSION(TABLE Bid PARTITION BY {}, "
        "DESCRIPTOR(bidtime), INTERVAL '5' MINUTES)) GROUP BY item, supplier_id, window_start"
    )
    wanted = summed(hr.session(5 * MINUTE), by=["item", "supplier_id"])
    for keys in ("item, supplier_id", "(item, supplier_id)", "supplier_id, item"):
        same(of(query.format(keys)), wanted)


def test_rows_are_filtered_and_keys_computed_before_a_window_of_a_table() -> None:
    made = of(
        f"SELECT upper(item) AS thing, AVG(price) AS mean, window_end FROM TABLE({TEN}) AS w "
        "WHERE w.price > 1 GROUP BY window_start, window_end, thing"
    )
    rows = hr.rekey(hr.filter(Bid, "price > 1"), thing="upper(item)")
    same(made, summed(hr.tumbling(10 * MINUTE), by="thing", stream=rows, mean=hr.average("price")))


def test_columns_may_be_qualified_by_their_stream() -> None:
    assert hr.sql(
        "SELECT b.item, b.price * 2 AS twice FROM Bid AS b WHERE b.price > 1", Bid=Bid
    ) == (hr.select(hr.filter(Bid, "price > 1"), "item", twice="price * 2"))
    assert hr.sql("SELECT Bid.* FROM Bid", Bid=Bid) == Bid


def test_grouping_sets_are_an_explode_before_the_aggregation() -> None:
    made = of(
        f"SELECT item, supplier_id, upper(item) AS big, COUNT(*) AS n, grouping_id "
        f"FROM TABLE({TEN}) GROUP BY window_start, item, ROLLUP (supplier_id, big)"
    )
    rows = hr.explode(hr.rekey(Bid, big="upper(item)"), "array(0, 1, 3)", into="grouping_id")
    nulled = hr.derive(
        rows,
        supplier_id="CASE WHEN grouping_id IN (0, 1) THEN `supplier_id` END",
        big="CASE WHEN grouping_id IN (0) THEN `big` END",
    )
    keys = ["item", "supplier_id", "big", "grouping_id"]
    same(made, summed(hr.tumbling(10 * MINUTE), by=keys, stream=nulled, n=hr.count()))
    mixed = ["item", hr.rollup("supplier_id", "big")]
    keyed = hr.rekey(Bid, big="upper(item)")
    same(made, summed(hr.tumbling(10 * MINUTE), by=mixed, stream=keyed, n=hr.count()))


def test_a_null_in_the_data_is_not_the_null_of_a_grouping_set() -> None:
    rows = [("a", 1), (None, 2), ("b", 4), ("a", 8)]
    with scripted_log(start=NOON + HOUR) as log:
        for item, price in rows:
            row = {"bidtime": NOON, "price": Decimal(price), "item": item, "supplier_id": "s"}
            log.write(Bid, row)
        events = events_of(log.log.topic("Bid").topic, log.records("Bid"))
    made = by_sets(hr.rollup("supplier_id", "item"))
    assert isinstance(made, hr.Aggregation)
    found = meaning(made, events)
    sums = {
        key[:3]: int(pane.result(made.aggregates)["price"]) for key, pane in found.panes.items()
    }
    assert sums == {
        ("s", "a", 0): 9,
        ("s", "b", 0): 4,
        ("s", None, 0): 2,
        ("s", None, 1): 15,
        (None, None, 3): 15,
    }
    assert (found.rows_in, found.counted) == (4, 12)


PYTHON_REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no set": (lambda: by_sets(hr.grouping_sets()), "no grouping sets"),
    "a set twice": (lambda: by_sets(hr.grouping_sets("item", ["item"])), "given twice"),
    "no column": (lambda: by_sets(hr.rollup("itm")), "Did you mean 'item'"),
    "its own column": (
        lambda: summed(
            hr.tumbling(MINUTE), by=hr.cube("item"), stream=hr.rekey(Bid, grouping_id="1")
        ),
        "reserved for grouping sets",
    ),
    "null outside": (
        lambda: summed(hr.tumbling(MINUTE), by=hr.cube("item"), n=hr.count("item")),
        "null outside of its grouping sets",
    ),
}


@pytest.mark.parametrize("name", PYTHON_REFUSED)
def test_grouping_sets_that_make_no_sense_are_refused(name: str) -> None:
    make, says = PYTHON_REFUSED[name]
    with pytest.raises(InvalidPipeline, match=says):
        make()


RESULTS = (
    "SELECT window_start, window_end, supplier_id, SUM(price) AS price, COUNT(*) AS cnt "
    f"FROM TABLE({TEN}) GROUP BY window_start, window_end, supplier_id"
)
TOP = (
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
    f"ORDER BY price DESC) AS rownum FROM ({RESULTS})) WHERE rownum <= 3"
)


def results(window: AnyWindow | None = None, by: Any = "supplier_id") -> hr.Aggregation:
    made: dict[str, Any] = {"price": hr.sum("price"), "cnt": hr.count()}
    return summed(window or hr.tumbling(10 * MINUTE), by=by, **made)


def test_the_first_rows_of_each_window_are_a_ranking() -> None:
    wanted = hr.top(results(), 3, by="price")
    same(of(TOP), wanted)
    same(of(TOP.replace("rownum <= 3", "rownum < 4")), wanted)
    same(of(TOP.replace("rownum <= 3", "3 >= rownum")), wanted)
    same(of(TOP.replace("rownum <= 3", "rownum = 1")), hr.top(results(), 1, by="price"))
    names = "SELECT supplier_id, price, cnt, rownum FROM"
    same(of(TOP.replace("SELECT * FROM", names)), wanted)
    ranked = TOP[len("SELECT * FROM (") : -len(") WHERE rownum <= 3")]
    same(of(f"WITH r AS ({ranked}) SELECT * FROM r WHERE r.rownum <= 3"), wanted)


def test_a_ranking_may_be_of_each_key_and_of_a_view() -> None:
    query = (
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, item ORDER BY cnt "
        "DESC) AS n FROM sales) WHERE n <= 2"
    )
    sales = results(by=["item", "supplier_id"])
    same(hr.sql(query, sales=sales), hr.top(sales, 2, by="cnt", within="item"))
    live = results(hr.running(hr.FOREVER), by=["item", "supplier_id"])
    query = query.replace("window_start, ", "")
    same(hr.sql(query, sales=live), hr.top(live, 2, by="cnt", within="item"))


FIRST = (
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item, supplier_id ORDER BY bidtime) "
    "AS n FROM Bid WHERE price > 1) WHERE n = 1"
)
SPANS: dict[str, Any] = {"ttl": 24 * HOUR, "delay": MINUTE}


def test_the_first_row_of_each_key_is_a_row_without_its_duplicates() -> None:
    rows = hr.filter(Bid, "price > 1")
    keys = ["item", "supplier_id"]
    wanted = hr.deduplicate(rows, by=keys, **SPANS)
    same(hr.sql(FIRST, Bid=Bid, **SPANS), wanted)
    same(hr.sql(FIRST.replace("bidtime", "bidtime ASC"), Bid=Bid, **SPANS), wanted)
    same(hr.sql(FIRST.replace("bidtime", "PROCTIME()"), Bid=Bid, **SPANS), wanted)
    last = hr.deduplicate(rows, by=keys, keep="last", **SPANS)
    same(hr.sql(FIRST.replace("bidtime", "bidtime DESC"), Bid=Bid, **SPANS), last)


def test_rows_without_duplicates_have_the_columns_that_are_selected() -> None:
    chosen = FIRST.replace("SELECT * FROM", "SELECT item, supplier_id AS who, price FROM")
    rows = hr.select(hr.filter(Bid, "price > 1"), "item", who="supplier_id", price="`price`")
    wanted = hr.deduplicate(rows, by=["item", "who"], **SPANS)
    same(hr.sql(chosen, Bid=Bid, **SPANS), wanted)
    inner = FIRST.replace("SELECT *, ROW", "SELECT item, supplier_id, ROW")
    rows = hr.select(hr.filter(Bid, "price > 1"), "item", "supplier_id")
    same(hr.sql(inner, Bid=Bid, **SPANS), hr.deduplicate(rows, by=["item", "supplier_id"], **SPANS))


WINDOW = f"FROM TABLE({TEN})"
BY = "GROUP BY window_start, window_end"
SESSION = "TABLE(SESSION(TABLE Bid{}, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES))"
RANKED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}) AS n FROM ({})"
REFUSED: dict[str, tuple[str, str, str, str]] = {
    "no GROUP BY": (f"SELECT * {WINDOW}", "only adds columns", "TUMBLE", "GROUP BY window_start"),
    "not grouped by": (
        f"SELECT item, SUM(price) {WINDOW} GROUP BY item", "lacks the", "item;", "window_end",
    ),
    "cumulative by start": (
        "SELECT SUM(price) FROM TABLE(CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL 1 HOUR, "
        "INTERVAL 1 DAY)) GROUP BY window_start", "lacks the window", "window_start;", "window_end",
    ),
    "two windows": (
        f"SELECT SUM(price) {WINDOW} {BY}, TUMBLE(bidtime, INTERVAL 1 HOUR)",
        "two windows", "TUMBLE(bidtime", "one of them",
    ),
    "auxiliary": (
        "SELECT TUMBLE_END(bidtime, INTERVAL 1 HOUR) AS e, SUM(price) FROM Bid "
        "GROUP BY TUMBLE(bidtime, INTERVAL 1 HOUR)", "a column of the result", "TUMBLE_END",
        "Write window_end",
    ),
    "sessions of all": (
        f"SELECT item, SUM(price) FROM {SESSION.format('')} {BY}, item",
        "must name the same keys", "SESSION", "PARTITION BY item",
    ),
    "sessions of another": (
        f"SELECT SUM(price) FROM {SESSION.format(' PARTITION BY item')} {BY}",
        "must name the same keys", "SESSION", "no PARTITION BY",
    ),
    "grouping sets of sessions": (
        f"SELECT item, SUM(price) FROM {SESSION.format(' PARTITION BY item')} {BY}, ROLLUP (item)",
        "one key, not grouping sets", "SESSION", "in GROUP BY",
    ),
    "partitioned": (
        "SELECT SUM(price) FROM TABLE(TUMBLE(TABLE Bid PARTITION BY item, DESCRIPTOR(bidtime), "
        f"INTERVAL 1 HOUR)) {BY}", "not partitioned", "item,", "GROUP BY",
    ),
    "not its time": (
        f"SELECT SUM(price) FROM TABLE(TUMBLE(TABLE Bid, DESCRIPTOR(price), INTERVAL 1 HOUR)) {BY}",
        "'price' is not it", "price), INTERVAL", "Write bidtime",
    ),
    "no size": (
        f"SELECT SUM(price) FROM TABLE(HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL 1 HOUR)) {BY}",
        "is not a window", "HOP", "INTERVAL slide, INTERVAL size [, INTERVAL offset]",
    ),
    "turned round": (
        "SELECT SUM(price) FROM TABLE(HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL 2 HOURS, "
        f"INTERVAL 1 HOUR)) {BY}", "leave gaps", "HOP", "at most the size",
    ),
    "unknown argument": (
        f"SELECT SUM(price) FROM TABLE(TUMBLE(DATA => TABLE Bid, GAP => INTERVAL 1 HOUR)) {BY}",
        "no argument GAP", "GAP", "TUMBLE(TABLE stream",
    ),
    "unknown function": (
        "SELECT * FROM TABLE(EXPLODE(TABLE Bid))", "not a window function", "EXPLODE", "TUMBLE",
    ),
    "window over totals": (
        "SELECT SUM(total) FROM TABLE(TUMBLE((SELECT SUM(price) AS total FROM Bid GROUP BY "
        f"RUNNING(bidtime, FOREVER)), INTERVAL '10' MINUTES)) {BY}",
        "none is final", "SELECT SUM(price)", "Use running(expiry)",
    ),
    "window over the start of a window": (
        f"WITH w AS ({RESULTS}) SELECT SUM(price) FROM TABLE(TUMBLE(TABLE w, "
        f"DESCRIPTOR(window_start), INTERVAL 1 HOUR)) {BY}", "'window_start' is not it",
        "window_start), INTERVAL 1", "Write window_time",
    ),
    "numbers in a window": (
        f"SELECT SUM(price) FROM TABLE(TUMBLE(({RANKED.format('window_start', 'cnt DESC', RESULTS)}"
        f"), INTERVAL 1 HOUR)) {BY}", "changes with every row", "PARTITION BY", "WHERE n <= 3",
    ),
    "numbers alone": (
        RANKED.format("window_start", "price DESC", RESULTS), "changes with every row",
        "PARTITION BY window_start O", "WHERE n <= 3",
    ),
    "no upper rank": (
        f"SELECT * FROM ({RANKED.format('window_start', 'price DESC', RESULTS)}) WHERE n > 3",
        "changes with every row", "PARTITION BY window_start O", "WHERE n <= 3",
    ),
    "the third": (
        f"SELECT * FROM ({RANKED.format('window_start', 'price DESC', RESULTS)}) WHERE n = 3",
        "changes with every row", "PARTITION BY window_start O", "WHERE n <= 3",
    ),
    "the lowest": (
        f"SELECT * FROM ({RANKED.format('window_start', 'price', RESULTS)}) WHERE n <= 3",
        "begins with the highest", "PARTITION BY window_start O", "SUM(-price)",
    ),
    "not of a window": (
        f"SELECT * FROM ({RANKED.format('supplier_id', 'price DESC', RESULTS)}) WHERE n <= 3",
        "is per window", "PARTITION BY supplier_id", "PARTITION BY window_start",
    ),
    "some columns": (
        f"SELECT cnt FROM ({RANKED.format('window_start', 'price DESC', RESULTS)}) WHERE n <= 3",
        "all columns", "cnt FROM (", "SELECT *",
    ),
    "filtered rank": (
        f"SELECT * FROM ({RANKED.format('window_start', 'price DESC', RESULTS)}) "
        "WHERE n <= 3 AND cnt > 5", "after they are ranked", "cnt > 5", "in a query around it",
    ),
    "top of rows": (
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) AS n "
        "FROM Bid) WHERE n <= 3", "numbered by the event time", "price DESC", "aggregate first",
    ),
    "the first three": (
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY bidtime) AS n "
        "FROM Bid) WHERE n <= 3", "remembered forever", "PARTITION BY item", "n = 1",
    ),
    "no key": (
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY bidtime) AS n FROM Bid) WHERE n = 1",
        "a key and an order", "ORDER BY bidtime", "PARTITION BY key",
    ),
    "key not selected": (
        "SELECT price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY bidtime) AS n "
        "FROM Bid) WHERE n = 1", "'item' is not selected", "SELECT price", "select all of it",
    ),
    "ranked with its groups": (
        "SELECT item, SUM(price), ROW_NUMBER() OVER (PARTITION BY item ORDER BY item) AS n "
        f"{WINDOW} {BY}, item", "a query around", "ROW_NUMBER", "FROM (SELECT ... GROUP BY ...)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_stream_cannot_do_is_refused_at_its_place(name: str) -> None:
    query, says, at, advises = REFUSED[name]
    with pytest.raises(InvalidPipeline) as caught:
        of(query)
    assert says in caught.value.message
    assert advises in caught.value.hint
    place = f"{query};".rindex(at) + 1
    assert f"Line 1, column {place} of the SQL" in caught.value.hint
    assert "sqlglot" not in str(caught.value)


@pytest.mark.parametrize("need", ["ttl", "delay"])
def test_duplicates_need_spans_that_only_the_user_knows(need: str) -> None:
    given = {name: span for name, span in SPANS.items() if name != need}
    with pytest.raises(InvalidPipeline, match=f"does not say its {need}") as caught:
        hr.sql(FIRST, Bid=Bid, **given)
    assert f"Add {need}=timedelta(...)" in caught.value.hint
    with pytest.raises(InvalidPipeline, match="does not use 'wait'"):
        hr.sql(FIRST, Bid=Bid, wait=MINUTE, **SPANS)


@pytest.mark.parametrize("query", [*(query for query, _ in FLINK.values()), TOP, FIRST])
def test_a_query_without_one_of_its_words_is_a_query_or_is_refused(query: str) -> None:
    words = re.findall(r"'[^']*'|\w+|[^\w\s]", query)
    for at in range(len(words)):
        with contextlib.suppress(InvalidPipeline):
            of(" ".join([*words[:at], *words[at + 1 :]]))
