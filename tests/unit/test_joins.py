"""Joins: refusals at the user's own line, and declarations."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidPipeline
from headrace.log import open_log
from headrace.pipeline.stream import sources
from tests.refusals import text_of

MINUTE = timedelta(minutes=1)

app = hr.App("shop")
shown = app.topic("shown", schema="ad int, user string, at timestamp", event_time="at")
clicks = app.topic("clicks", schema="ad_id int, cost int, at timestamp", event_time="at")
users = app.topic("users", schema="id string, name string, at timestamp", event_time="at", key="id")
clocks = app.topic("clocks", schema="ad_id int, at timestamp_ntz", event_time="at")
table = hr.table(users, key="id")


def joined(**changes: Any) -> hr.Join:
    given: dict[str, Any] = {
        "on": {"ad": "ad_id"}, "after": MINUTE, "delay": MINUTE, "prefix": "click_",
    }  # fmt: skip
    return hr.join(shown, clicks, **{**given, **changes})


def joined_to(other: hr.Stream) -> hr.Join:
    return hr.join(shown, other, on={"ad": "ad_id"}, after=MINUTE, delay=MINUTE, prefix="r_")


def enriched(**changes: Any) -> Any:
    given: dict[str, Any] = {"on": {"user": "id"}, "wait": MINUTE, "prefix": "user_"}
    return hr.enrich(shown, table, **{**given, **changes})


def nothing(keys: Any) -> dict[Any, Any]:
    return {}


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "an unknown column": (lambda: joined(on={"add": "ad_id"}), "no column 'add'.*mean 'ad'"),
    "an unknown one of the right": (lambda: joined(on="ad"), "right of the join has no column"),
    "no columns": (lambda: joined(on=[]), "needs columns to join on"),
    "names on both sides": (lambda: joined(prefix=""), "Both sides .* 'at'.*prefix="),
    "times of another type": (lambda: joined_to(clocks), "'clocks' has timestamp_ntz"),
    "a table with times of another type": (
        lambda: hr.enrich(shown, hr.table(clocks, key="ad_id"), on={"ad": "ad_id"}, wait=MINUTE),
        "'clocks' has timestamp_ntz",
    ),
    "no rows at all": (lambda: joined(limit=0), "limit cannot be 0"),
    "a negative bound": (lambda: joined(before=-MINUTE), "before cannot be negative"),
    "another kind": (lambda: joined(how="outer"), "how cannot be 'outer'.*full"),
    "a table by another column": (lambda: enriched(on={"user": "name"}), "looked up by its key"),
    "no wait": (lambda: enriched(wait=None), "no default"),
    "a latest that waits": (lambda: enriched(mode="latest"), "neither waits nor amends"),
    "an amended inner": (lambda: enriched(how="inner", amend=MINUTE), "dropped cannot be amended"),
    "another mode": (lambda: enriched(mode="newest"), "mode cannot be 'newest'"),
    "a stream for a table": (lambda: hr.enrich(shown, users, on="user"), "needs a table"),  # type: ignore[call-overload]
    "a filtered table": (lambda: hr.table(hr.filter(users, "id > 'a'"), key="id"), "deleted="),
    "a table without a key": (lambda: hr.table(users, key=[]), "needs a key"),
    "an unknown key": (lambda: hr.table(users, key="nr"), "no column 'nr'"),
    "a table of itself": (lambda: hr.enrich(users, table, on="id", wait=MINUTE), "is both"),
    "a remote without its key": (lambda: hr.remote(nothing, schema="a int", key="b"), "key 'b'"),
    "a remote that is none": (lambda: hr.remote(3, schema="a int", key="a"), "needs a function"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_at_the_users_line(what: str) -> None:
    make, message = REFUSED[what]
    with pytest.raises(InvalidPipeline, match=r"test_joins\.py") as refused:
        make()
    assert re.search(message, text_of(refused.value))


def test_a_join_of_totals_that_are_never_final_is_refused() -> None:
    counts = hr.aggregate(
        shown, by="ad", window=hr.running(hr.FOREVER), lateness=hr.Lateness(MINUTE, MINUTE),
        n=hr.count(),
    )  # fmt: skip
    with pytest.raises(InvalidPipeline, match="go on for ever, so none is final"):
        hr.join(counts, clicks, on={"ad": "ad_id"}, after=MINUTE, delay=MINUTE, prefix="r_")


def test_a_topic_that_goes_by_arrival_is_not_joined() -> None:
    arrived = app.topic(
        "arrived", schema="ad int, at timestamp", event_time="at", settings={"frontier": "arrival"}
    )
    with pytest.raises(InvalidPipeline, match="the frontier 'arrival'"):
        hr.join(shown, arrived, on="ad", after=MINUTE, delay=MINUTE, prefix="r_")


def test_late_rows_are_published_where_the_join_is() -> None:
    other = hr.App("late")
    with pytest.raises(InvalidPipeline, match="No step computes the stream whose late rows"):
        other.publish("late", joined().late)


def test_the_columns_of_a_join_are_both_sides_once() -> None:
    assert joined().columns == ("ad", "user", "at", "click_cost", "click_at", "joined_at")
    assert joined(how="anti").columns == ("ad", "user", "at", "joined_at")
    assert joined().late.columns[-3:] == ("side", "watermark", "late_by")
    assert [source.topic.name for source in sources(joined())] == ["shown", "clicks"]


def test_the_columns_of_an_enriched_stream_are_its_own_and_the_tables() -> None:
    assert enriched().columns == ("ad", "user", "at", "user_name", "user_at")
    assert enriched(amend=MINUTE).columns[-2:] == ("row", "revision")


def test_it_is_explained_what_is_held_and_for_how_long() -> None:
    shop = hr.App("explained")
    shop.publish("pairs", joined(how="full"))
    shop.publish("named", enriched(amend=MINUTE))
    explained = shop.explain()
    assert explained["pairs"]["holds"].splitlines() == [
        "each row of shown, until clicks is 2m past it",
        "each row of clicks, until shown is 1m past it",
    ]
    assert (
        explained["pairs"]["limit"]
        == "1,000,000 rows of one key on a side, else the pipeline stops"
    )
    assert "until users has caught up or shown is 1m ahead" in explained["named"]["waits"]


def test_what_a_join_will_hold_is_told_by_the_rate_of_a_log(tmp_path: Path) -> None:
    shop = hr.App("rates")
    shop.publish("pairs", joined(after=9 * MINUTE))
    url, noon = f"file:{tmp_path}", datetime(2026, 1, 1, tzinfo=UTC)
    with open_log(url) as log, log.producer() as producer:
        log.ensure_topic(shown.topic)
        for second in range(0, 3_600, 2):
            at = noon + timedelta(seconds=second)
            producer.send("shown", {"ad": 1, "user": "ann", "at": at})
    explained = shop.explain(url)["pairs"]["state"]
    # Half a row per second, for the ten minutes that each may wait; there are no clicks yet.
    assert re.fullmatch(
        r"about 300 rows of shown, [\d,]+ k?[bB](ytes)?, at 0.5 rows/s", explained
    ), explained
