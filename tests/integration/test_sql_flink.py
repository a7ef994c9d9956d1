"""SQL of Flink on Spark: the queries of its page on window aggregation, and the joins beside them.

The bids are those of Flink's page, and so are the sums. The oracle agrees with both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.clock import to_datetime
from headrace.oracle.events import Event
from headrace.testing import events_of, meaning, scripted_log
from tests.spark import shared

MORNING = datetime(2020, 4, 15, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

APP = """
CREATE TABLE Bid (bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, supplier_id STRING,
  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND) WITH ('connector' = 'kafka');
CREATE TABLE Sale (thing STRING, sold_at TIMESTAMP(3),
  WATERMARK FOR sold_at AS sold_at - INTERVAL '1' SECOND) WITH ('connector' = 'kafka');
CREATE TABLE Supplier (id STRING, city STRING, since TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED,
  WATERMARK FOR since AS since - INTERVAL '1' SECOND) WITH ('connector' = 'upsert-kafka');

CREATE VIEW flink_tumbling AS
SELECT window_start, window_end, SUM(price)
  FROM TABLE(
    TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end;

CREATE VIEW flink_hopping AS
SELECT window_start, window_end, SUM(price)
  FROM TABLE(
    HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end;

CREATE VIEW flink_cumulative AS
SELECT window_start, window_end, SUM(price)
  FROM TABLE(
    CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end;

CREATE VIEW flink_session AS
SELECT window_start, window_end, supplier_id, SUM(price) AS total_price
  FROM TABLE(
    SESSION(TABLE Bid PARTITION BY supplier_id, DESCRIPTOR(bidtime), INTERVAL '3' MINUTES))
  GROUP BY supplier_id, window_start, window_end;

CREATE VIEW flink_grouping_sets AS
SELECT window_start, window_end, supplier_id, SUM(price) as price
  FROM TABLE(
    TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end, GROUPING SETS ((supplier_id), ());

CREATE VIEW flink_cube AS
SELECT window_start, window_end, item, supplier_id, SUM(price) as price
  FROM TABLE(
    TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end, CUBE (supplier_id, item);

CREATE VIEW flink_top AS
SELECT *
  FROM (
    SELECT *, ROW_NUMBER() OVER (
      PARTITION BY window_start, window_end ORDER BY price DESC) as rownum
    FROM (
      SELECT window_start, window_end, supplier_id, SUM(price) as price, COUNT(*) as cnt
      FROM TABLE(
        TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES))
      GROUP BY window_start, window_end, supplier_id
    )
  ) WHERE rownum <= 1;

CREATE STREAM sold AS
SELECT b.item, b.price, s.sold_at FROM Bid b, Sale s
WHERE b.item = s.thing AND s.sold_at BETWEEN b.bidtime AND b.bidtime + INTERVAL '4' MINUTES;

CREATE STREAM placed WITH (wait = '1 second') AS
SELECT b.item, s.city FROM Bid b LEFT JOIN Supplier FOR SYSTEM_TIME AS OF b.bidtime AS s
ON b.supplier_id = s.id;

CREATE STREAM firsts WITH (ttl = '1 day') AS
SELECT * FROM (
  SELECT item, supplier_id, ROW_NUMBER() OVER (PARTITION BY supplier_id ORDER BY bidtime) AS n
  FROM Bid
) WHERE n = 1;

PUBLISH sold TO 'sold';
PUBLISH placed TO 'placed';
PUBLISH firsts TO 'firsts';
"""
BIDS = [
    (5, "4.00", "C", "supplier1"),
    (7, "2.00", "A", "supplier1"),
    (9, "5.00", "D", "supplier2"),
    (11, "3.00", "B", "supplier2"),
    (13, "1.00", "E", "supplier1"),
    (17, "6.00", "F", "supplier2"),
]


def at(minute: int) -> datetime:
    return MORNING + minute * MINUTE


def wanted_of(view: str) -> list[tuple[Any, ...]]:
    """The rows on Flink's page, as minutes after eight and sums; others by hand."""
    found: dict[str, list[tuple[Any, ...]]] = {
        "flink_tumbling": [(0, 10, 11), (10, 20, 10)],
        "flink_hopping": [(0, 10, 11), (5, 15, 15), (10, 20, 10), (15, 25, 6)],
        "flink_cumulative": [
            (0, 6, 4), (0, 8, 6), (0, 10, 11), (10, 12, 3), (10, 14, 4), (10, 16, 4), (10, 18, 10),
            (10, 20, 10),
        ],
        "flink_session": [
            (5, 10, "supplier1", 6), (9, 14, "supplier2", 8), (13, 16, "supplier1", 1),
            (17, 20, "supplier2", 6),
        ],
        "flink_grouping_sets": [
            (0, 10, None, 11), (0, 10, "supplier1", 6), (0, 10, "supplier2", 5),
            (10, 20, None, 10), (10, 20, "supplier1", 1), (10, 20, "supplier2", 9),
        ],
        "flink_top": [(0, 10, "supplier1", 6), (10, 20, "supplier2", 9)],
    }  # fmt: skip
    if view != "flink_cube":
        return sorted(((*key, Decimal(f"{n}.00")) for *key, n in found[view]), key=str)
    sums: dict[tuple[Any, ...], Decimal] = {}
    for minute, price, item, supplier in BIDS:
        start = minute // 10 * 10
        for key in ((item, supplier), (item, None), (None, supplier), (None, None)):
            whole = (start, start + 10, *key)
            sums[whole] = sums.get(whole, Decimal("0.00")) + Decimal(price)
    return sorted(((*key, total) for key, total in sums.items()), key=str)


def minute_of(moment: str | datetime) -> int:
    """Minutes after eight."""
    read = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return (read.replace(tzinfo=UTC) - MORNING) // MINUTE


def rows_of(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows as minutes after eight, the keys, and the sum."""
    rows = []
    for row in found:
        spans = [minute_of(row[name]) for name in ("window_start", "window_end")]
        keys = [row[name] for name in ("item", "supplier_id") if name in row]
        total = next(row[name] for name in ("sum", "total_price", "price") if name in row)
        rows.append((*spans, *keys, Decimal(total)))
    return sorted(rows, key=str)


def meant(stream: hr.Aggregation, events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """The same rows, from the oracle."""
    rows = []
    for key, pane in meaning(stream, events).panes.items():
        spans = [minute_of(to_datetime(moment)) for moment in (pane.start, pane.end)]
        named = dict(zip(stream.by, key, strict=False))
        keys = [named[name] for name in ("item", "supplier_id") if name in named]
        rows.append((*spans, *keys, *pane.result(stream.aggregates).values()))
    return sorted(rows, key=str)


def test_the_queries_of_flinks_page_give_what_the_page_shows(tmp_path: Path) -> None:
    file = tmp_path / "bids.sql"
    file.write_text(APP)
    app = hr.load_sql(file)
    with scripted_log(start=MORNING + timedelta(hours=1)) as log:
        for topic in app.topics.values():
            log.log.ensure_topic(topic)
        cities = [("supplier1", "Ulm", 0), ("supplier1", "Rom", 10), ("supplier3", "Bern", 59)]
        names = ("bidtime", "price", "item", "supplier_id")
        bids = [
            dict(zip(names, (at(minute), Decimal(price), *rest), strict=True))
            for minute, price, *rest in BIDS
        ]
        sales = [(8, "C"), (10, "C"), (16, "B"), (17, "E"), (18, "E"), (30, "F")]
        log.write("Supplier", *({"id": s, "city": c, "since": at(m)} for s, c, m in cities))
        log.write("Sale", *({"thing": item, "sold_at": at(minute)} for minute, item in sales))
        log.write("Bid", *bids[:3])
        log.write("Bid", *bids[3:])
        events = events_of(log.log.topic("Bid").topic, log.records("Bid"))
        results = log.run(app, spark=shared())
        for name, view in app.views.items():
            assert rows_of(results.view(name)) == wanted_of(name), name
            if isinstance(view.stream, hr.Aggregation):
                assert meant(view.stream, events) == wanted_of(name), name
        law = results.law("flink_cube")
        assert (law.rows, law.exploded, law.counted) == (6, 18, 24)
        sets = {
            row["supplier_id"]: row["grouping_id"] for row in results.view("flink_grouping_sets")
        }
        assert sets == {"supplier1": 0, "supplier2": 0, None: 1}
        sold = {(row["item"], minute_of(row["sold_at"])) for row in results.topic("sold")}
        assert sold == {("C", 8), ("E", 17)}
        placed = {row["item"]: row["city"] for row in results.topic("placed")}
        nowhere = dict.fromkeys("DBF")
        assert placed == {"C": "Ulm", "A": "Ulm", "E": "Rom", **nowhere}
        assert [row["item"] for row in results.topic("firsts")] == ["C", "D"]


CASCADE = """
CREATE TABLE bid (bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, supplier_id STRING,
  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND) WITH ('connector' = 'kafka');

-- tumbling 5 minutes for each supplier_id
CREATE VIEW window1 AS
-- Note: The window start and window end fields of inner Window TVF are optional in the select clause.
SELECT window_start AS window_5mintumble_start, window_end AS window_5mintumble_end, window_time AS rowtime, SUM(price) AS partial_price
  FROM TABLE(
    TUMBLE(TABLE bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES))
  GROUP BY supplier_id, window_start, window_end, window_time;

-- tumbling 10 minutes on the first window
CREATE VIEW window2 AS
SELECT window_start, window_end, SUM(partial_price) AS total_price
  FROM TABLE(
      TUMBLE(TABLE window1, DESCRIPTOR(rowtime), INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end;
"""  # noqa: E501


def test_a_window_over_the_windows_of_flinks_page_adds_up_their_sums(tmp_path: Path) -> None:
    file = tmp_path / "cascade.sql"
    file.write_text(CASCADE)
    app = hr.load_sql(file)
    bids = [*BIDS, (40, "9.00", "G", "supplier1")]  # the last one closes the windows before it
    partial, total = Counter[tuple[Any, ...]](), Counter[int]()
    for minute, price, _, supplier in BIDS:
        partial[supplier, minute // 5 * 5] += int(Decimal(price))
        total[minute // 10 * 10] += int(Decimal(price))
    with scripted_log(start=MORNING + timedelta(hours=1)) as log:
        log.log.ensure_topic(app.topics["bid"])
        for minute, price, item, supplier in bids:
            bid = {"price": Decimal(price), "item": item, "supplier_id": supplier}
            log.write("bid", {"bidtime": at(minute), **bid})
        results = log.run(app, spark=shared())
        found = {
            (row["supplier_id"], minute_of(row["window_5mintumble_start"])): row
            for row in results.view("window1")
        }
        sums = {minute_of(row["window_start"]): row for row in results.view("window2")}
    assert {key: Decimal(row["partial_price"]) for key, row in found.items()} == partial
    assert {start: Decimal(row["total_price"]) for start, row in sums.items()} == total
    for (_, start), row in found.items():
        assert minute_of(row["window_5mintumble_end"]) == start + 5
        assert datetime.fromisoformat(row["rowtime"]).replace(tzinfo=UTC) == (
            at(start + 5) - timedelta(microseconds=1)
        )
    assert [step.step for step in results.steps] == [
        "window1.part", "window1", "window2.part", "window2"
    ]  # fmt: skip
