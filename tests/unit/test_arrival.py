"""A count by key and arrival time gives a warning, and a total does not."""

from __future__ import annotations

from datetime import timedelta

import pytest

import headrace as hr

MINUTE = timedelta(minutes=1)


def counted(by: list[str], missing_time: str) -> hr.Aggregation:
    app = hr.App("operations")
    source = app.topic(
        "requests",
        schema="user string, seen timestamp",
        event_time="seen",
        settings={"missing_time": missing_time},
    )
    return hr.aggregate(
        hr.filter(source, "user is not null"),
        by=by,
        window=hr.tumbling(MINUTE),
        lateness=hr.Lateness(timedelta(0), timedelta(0)),
        n=hr.count(),
    )


def test_to_count_a_column_by_arrival_is_warned_of_at_the_users_line() -> None:
    with pytest.warns(hr.ArrivalTimeWarning, match="user will be counted") as caught:
        counted(["user"], "arrival")
    assert caught[0].filename == __file__


def test_to_count_everything_by_arrival_is_not() -> None:
    counted([], "arrival")


def test_to_count_by_event_time_is_not() -> None:
    counted(["user"], "dead")
