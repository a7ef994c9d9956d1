"""`hr.show`: the rows of a step over the newest part of a log, without Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.application.show import look
from headrace.cli.show import jsonable, stream_of, watch_rows
from headrace.clock import VirtualClock
from headrace.errors import InvalidPipeline, InvalidSetting, UnknownTopic, UserError
from headrace.pipeline.where import Where
from headrace.testing import ScriptedLog, scripted_log

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

app = hr.App("shop")
orders = app.topic("orders", schema="item string, n int, at timestamp", event_time="at")
sales = hr.aggregate(
    orders,
    by="item",
    window=hr.tumbling(MINUTE),
    lateness=hr.Lateness(delay=MINUTE, grace=MINUTE),
    sold=hr.sum("n"),
)
app.view("sales", sales)
app.publish("sales.late", sales.late)


class NeedsSpark(Exception):
    """Raised where Spark would be started."""


def no_spark(why: str) -> SparkSession:
    raise NeedsSpark(why)


def shown(step: Any, log: ScriptedLog, n: int = 10, rows: int = 10_000) -> hr.Shown:
    return look(step, n, first=False, log=log.log, rows=rows, session=no_spark)


def order(item: str, n: int, minutes: float) -> dict[str, Any]:
    return {"item": item, "n": n, "at": NOON + minutes * MINUTE}


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    """Five commits; the last row is too late for its window."""
    with scripted_log(start=NOON + 60 * MINUTE) as made:
        made.write(orders, order("pen", 1, 0), order("ink", 2, 0))
        made.write(orders, order("pen", 3, 1))
        made.write(orders, order("pen", 4, 10), order("ink", 5, 10))
        made.write(orders, order("cap", 6, 11))
        made.write(orders, order("pen", 7, 2))
        yield made


def test_the_last_rows_come_newest_first_with_the_part_of_the_log_they_are_of(
    log: ScriptedLog,
) -> None:
    found = shown(hr.filter(orders, "n > 1"), log, n=2)
    assert [row["n"] for row in found.rows] == [7, 6]
    assert found.caption == "the last 2 of 6 rows, computed from all 7 rows of orders"


def test_the_first_rows_come_oldest_first(log: ScriptedLog) -> None:
    found = hr.show(orders, 2, first=True, log=log.log)
    assert [row["n"] for row in found.rows] == [1, 2]
    assert found.caption.startswith("the first 2 of 7 rows")


def test_a_part_of_the_log_is_named_and_older_rows_do_not_count(log: ScriptedLog) -> None:
    found = shown(sales, log, rows=3)
    assert found.caption == "1 row, computed from the newest 2 of 7 rows of orders"
    assert [row["item"] for row in found.rows] == ["cap"]


def test_a_row_that_older_rows_made_late_is_late_in_any_part_of_the_log(log: ScriptedLog) -> None:
    for rows in (1, 3, 100):
        (late,) = shown(sales.late, log, rows=rows).rows
        assert (late["n"], late["late_by"]) == (7, 6 * 60)
        assert late["watermark"] == NOON + 10 * MINUTE


def test_the_latest_windows_come_first_and_in_each_the_keys_are_sorted(log: ScriptedLog) -> None:
    found = shown(app.views["sales"], log, n=3)
    assert [(row["window_start"], row["item"], row["sold"]) for row in found.rows] == [
        (NOON + 11 * MINUTE, "cap", 6),
        (NOON + 10 * MINUTE, "ink", 5),
        (NOON + 10 * MINUTE, "pen", 4),
    ]
    assert found.columns == ("item", "window_start", "window_end", "sold")


def test_a_ranking_is_shown_from_its_first_rank(log: ScriptedLog) -> None:
    found = shown(hr.top(sales, 2, by="sold"), log, n=3)
    assert [(row["rank"], row["item"]) for row in found.rows] == [
        (1, "cap"), (1, "ink"), (2, "pen"),
    ]  # fmt: skip


def test_final_results_are_shown_when_they_are_final(log: ScriptedLog) -> None:
    final = hr.aggregate(
        orders, by="item", window=hr.tumbling(MINUTE), emit="final",
        lateness=hr.Lateness(delay=MINUTE, grace=MINUTE), sold=hr.sum("n"),
    )  # fmt: skip
    assert max(row["window_start"] for row in shown(final, log).rows) == NOON + MINUTE


def test_duplicates_are_dropped_and_streams_are_joined(log: ScriptedLog) -> None:
    once = hr.deduplicate(orders, by="item", ttl=timedelta(hours=1), delay=timedelta(hours=1))
    assert [row["n"] for row in shown(once, log).rows] == [6, 2, 1]
    pens = hr.filter(orders, "item = 'pen'")
    inks = hr.select(hr.derive(hr.filter(orders, "item = 'ink'"), item="'pen'"), "item", m="n")
    both = hr.join(
        pens, inks, on="item", before=timedelta(0), after=timedelta(0), delay=timedelta(hours=1)
    )
    assert [(row["n"], row["m"]) for row in shown(both, log).rows] == [(4, 5), (1, 2)]


def test_what_the_oracle_does_not_know_is_for_spark_with_the_reason(log: ScriptedLog) -> None:
    items = hr.table(orders, key="item")
    for step, why in (
        (hr.derive(orders, x="md5(item)"), "does not support 'MD5"),
        (hr.filter(orders, "n > '1'"), "'1' is not a number"),
        (hr.derive(orders, x="n / 0"), "ZeroDivisionError"),
        (hr.derive(orders, x=lambda: None), "a Column made in Python"),
        (hr.join_tables(items, items, on="item", prefix="b_"), "does not compute joined tables"),
    ):  # fmt: skip
        with pytest.raises(NeedsSpark, match=why):
            shown(step, log)


def test_a_topic_that_is_missing_or_not_as_declared_is_refused(log: ScriptedLog) -> None:
    other = hr.App("other").topic("orders", schema="item int, at timestamp", event_time="at")
    with pytest.raises(InvalidPipeline, match="not as declared"):
        other.show(log=log.log)
    missing = hr.App("other").topic("nothing", schema="at timestamp", event_time="at")
    with pytest.raises(UnknownTopic):
        missing.show(log=log.log)


def test_what_is_no_step_and_no_number_of_rows_is_refused(log: ScriptedLog) -> None:
    with pytest.raises(UserError, match="not App"):
        hr.show(app, log=log.log)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="n cannot be 0"):
        orders.show(0, log=log.log)


def test_a_stream_finds_the_log_of_its_application(log: ScriptedLog) -> None:
    mine = hr.App("mine", log=log.log.url)
    found = mine.topic("orders", schema="item string, n int, at timestamp", event_time="at")
    assert len(hr.filter(found, "n > 3").show().rows) == 4


def test_the_text_and_the_html_hold_rows_caption_and_nothing_that_controls(
    log: ScriptedLog,
) -> None:
    log.write(orders, order("<b>\x1b", 1, 12), {"item": None, "n": 1, "at": NOON + 12 * MINUTE})
    found = shown(orders, log, n=2)
    assert repr(found).splitlines() == [
        "item     n  at",
        "null     1  2026-01-01 12:12:00Z",
        "<b>\\x1b  1  2026-01-01 12:12:00Z",
        "the last 2 of 9 rows, computed from all 9 rows of orders",
    ]
    drawn = found._repr_html_()
    assert "<td>&lt;b&gt;\\x1b</td>" in drawn
    assert "<i>null</i>" in drawn
    assert found.caption in drawn


def test_an_explanation_is_html_in_a_notebook() -> None:
    drawn = hr.App.explain(app)._repr_html_()
    assert "application shop" in drawn
    assert "<b>step sales</b>" in drawn
    assert "<td" in drawn


def test_showing_loads_no_spark() -> None:
    program = (
        "import sys, headrace as hr; from headrace.cli import show; hr.show; "
        "from headrace.operators import registry; import importlib;"
        "[importlib.import_module(o.package + '.meaning') for _, o in registry.OPERATORS];"
        "print('pyspark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_a_step_is_a_view_an_output_or_a_topic_by_its_name() -> None:
    here = Where("shop.py", 1)
    assert stream_of(app, "sales", here) is sales
    assert stream_of(app, "sales.late", here) == sales.late
    assert stream_of(app, "orders", here) == orders
    with pytest.raises(UserError) as refused:
        stream_of(app, "sale", here)
    assert refused.value.hint == "Did you mean 'sales'?"


def test_rows_are_drawn_again_when_the_log_changes_and_only_then(
    log: ScriptedLog, capsys: pytest.CaptureFixture[str]
) -> None:
    states = iter([1, 1, 1, 2, 2])

    def state() -> int:
        if (found := next(states, None)) is None:
            raise KeyboardInterrupt
        return found

    with pytest.raises(Exception) as ended:  # typer's way out
        watch_rows(lambda: shown(orders, log), state, VirtualClock(NOON))
    assert getattr(ended.value, "exit_code", None) == 130
    assert capsys.readouterr().out.count("computed from all 7 rows") == 2


def test_every_value_has_a_form_in_json() -> None:
    assert jsonable({"a": [NOON, None, b"\xff", float("nan")], "b": NOON.date()}) == {
        "a": ["2026-01-01T12:00:00Z", None, {"base64": "/w=="}, "NaN"],
        "b": "2026-01-01",
    }
