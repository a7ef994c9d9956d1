"""Differences between two declarations are explained in words."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.language.differences import differences
from headrace.plan.steps import definition_of, steps_of

MINUTE = timedelta(minutes=1)


def declared(
    window: Any = None,
    by: Any = "url",
    delay: int = 10,
    emit: Any = "updates",
    condition: str | None = None,
    schema: str = "url string, user string, at timestamp",
    key: Any = None,
    **aggregates: Any,
) -> dict[str, Any]:
    app = hr.App("a")
    stream: hr.Stream = app.topic("views", schema=schema, event_time="at")
    if condition is not None:
        stream = hr.filter(stream, condition)
    made = hr.aggregate(
        stream,
        by=by,
        window=window or hr.tumbling(MINUTE),
        lateness=hr.Lateness(timedelta(seconds=delay), MINUTE),
        emit=emit,
        **(aggregates or {"hits": hr.count()}),
    )
    app.view("v", made, key=key)
    (step,) = steps_of(app)
    found: dict[str, Any] = json.loads(json.dumps(definition_of(step)))
    return found


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (
            {},
            {"window": hr.hopping(5 * MINUTE, MINUTE)},
            ["the window was tumbling 1m and is hopping 5m every 1m"],
        ),
        (
            {"window": hr.sliding(MINUTE)},
            {"window": hr.session(2 * MINUTE)},
            ["the window was sliding 1m and is session 2m"],
        ),
        (
            {"window": hr.tumbling(MINUTE)},
            {"window": hr.tumbling(MINUTE, offset=timedelta(seconds=5))},
            ["the window was tumbling 1m and is tumbling 1m from 5s"],
        ),
        (
            {},
            {"delay": 30},
            ["the lateness was 10s and 1m of grace and is 30s and 1m of grace"],
        ),
        ({}, {"emit": "final"}, ["the emission was 'updates' and is 'final'"]),
        (
            {"hits": hr.count(), "most": hr.max("user")},
            {"hits": hr.count("user"), "people": hr.distinct("user")},
            [
                "aggregate 'people' is new",
                "aggregate 'most' is gone",
                "aggregate 'hits' is computed differently",
            ],
        ),
        (
            {"condition": "user > 'a'"},
            {"condition": "user > 'b'"},
            ["the filter was \"user > 'a'\" and is \"user > 'b'\""],
        ),
        (
            {},
            {"key": ["window_start", "url"]},
            ["the key of the view was url, window_start and is window_start, url"],
        ),
    ],
)
def test_what_has_changed_is_named(before: Any, now: Any, words: list[str]) -> None:
    assert differences(declared(**before), declared(**now)) == words


def test_another_key_is_named_with_what_hangs_on_it() -> None:
    assert differences(declared(), declared(by=["url", "user"])) == [
        "the grouping was url and is url, user",
        "the key of the view was url, window_start and is url, user, window_start",
    ]


def test_a_used_column_of_another_type_is_named_by_the_schema() -> None:
    (words,) = differences(declared(), declared(schema="url bigint, user string, at timestamp"))
    assert words == (
        "the schema of the topic was 'url string, at timestamp' and is 'url bigint, at timestamp'"
    )


def test_a_column_that_a_step_does_not_use_is_no_part_of_its_definition() -> None:
    wider = "url string, user string, at timestamp, agent string"
    assert declared() == declared(schema=wider) == declared(schema="url string, at timestamp")
    assert declared(condition="user = 'a'") != declared(condition="agent = 'a'", schema=wider)
    used = differences(declared(), declared(hits=hr.count("user")))
    assert used == ["aggregate 'hits' is computed differently"]


def test_a_published_stream_uses_the_columns_that_it_has_and_late_rows_use_all() -> None:
    def defined(schema: str, *, late: bool) -> list[Any]:
        app = hr.App("a")
        source = app.topic("views", schema=schema, event_time="at")
        per_url = hr.aggregate(
            source,
            by="url",
            window=hr.tumbling(MINUTE),
            lateness=hr.Lateness(MINUTE, MINUTE),
            hits=hr.count(),
        )
        app.view("v", per_url)
        if late:
            app.publish("late", per_url.late)
        app.publish("urls", hr.select(source, "url", "at"))
        app.publish("all", hr.filter(source, "url <> ''"))
        return [definition_of(step) for step in steps_of(app)]

    narrow, wide = "url string, at timestamp", "url string, at timestamp, agent string"
    for late in (False, True):
        one, other = (defined(schema, late=late) for schema in (narrow, wide))
        assert [a == b for a, b in zip(one, other, strict=True)] == [not late, True, False]


def test_a_step_between_is_seen() -> None:
    assert differences(declared(), declared(condition="user is not null")) == ["the filter is new"]


def merged(*conditions: str) -> dict[str, Any]:
    source = hr.App("a").topic("views", schema="url string, at timestamp", event_time="at")
    merged = hr.merge(*(hr.filter(source, condition) for condition in conditions))
    return merged.definition(str)


def test_what_is_merged_is_told_stream_by_stream() -> None:
    a, b, c = (f"url = '{letter}'" for letter in "abc")
    assert differences(merged(a, b), merged(a, c)) == [
        "in merged stream 2 the filter was \"url = 'b'\" and is \"url = 'c'\""
    ]
    assert differences(merged(a, b), merged(a, b, c)) == ["2 streams were merged and 3 are"]
