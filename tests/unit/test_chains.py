"""Chains as they are declared: how they are cut into steps, named, ordered and told apart."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.application.chains import stages_of, writers_of
from headrace.errors import InvalidPipeline
from headrace.language.differences import differences
from headrace.pipeline.chains import Part
from headrace.pipeline.stream import sources
from headrace.plan.steps import Step, definition_of, fingerprint, steps_of
from headrace.runtime.realtime.qualify import check_real_time

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LATENESS = hr.Lateness(MINUTE, MINUTE)


def clicks(app: hr.App, event_time: str = "at") -> hr.Stream:
    schema = "page string, user bigint, ms bigint, at timestamp"
    return app.topic("clicks", schema=schema, event_time=event_time)


def counted(stream: hr.Stream, size: timedelta = MINUTE, **more: Any) -> hr.Aggregation:
    window = more.pop("window", hr.tumbling(size))
    return hr.aggregate(stream, by="page", window=window, lateness=LATENESS, **more, n=hr.count())


def chained(app: hr.App) -> dict[str, Step]:
    return {step.name: step for step in steps_of(app)}


def test_each_step_of_a_chain_is_named_after_the_one_that_reads_it() -> None:
    app = hr.App("shop")
    hours = counted(hr.filter(counted(hr.derive(clicks(app), page="upper(page)")), "n > 1"), HOUR)
    app.view("days", counted(hours, 24 * HOUR))
    steps = chained(app)
    assert list(steps) == ["days.part.part", "days.part", "days"]
    assert steps["days.part.part"].topics == ("clicks",)
    assert steps["days.part"].topics == steps["days.part.part"].outputs == ("shop.days.part.part",)
    assert steps["days"].topics == steps["days.part"].outputs == ("shop.days.part",)


def test_the_sides_of_a_join_have_steps_of_their_own() -> None:
    app = hr.App("shop")
    source = clicks(app)
    first = counted(source)
    second = hr.filter(hr.deduplicate(source, by="page", ttl=HOUR, delay=MINUTE), "user > 1")
    joined = hr.join(first, second, on="page", after=HOUR, delay=MINUTE, prefix="r_")
    app.publish("pairs", joined)
    app.publish("late", second.input.late)  # type: ignore[attr-defined]
    steps = chained(app)
    assert list(steps) == ["pairs.left", "pairs.right", "pairs"]
    assert steps["pairs"].topics == ("shop.pairs.left", "shop.pairs.right")
    assert (steps["pairs.left"].late, steps["pairs.right"].late) == ((), ("late",))


def test_results_that_are_read_twice_are_computed_for_each_role() -> None:
    app = hr.App("shop")
    minutes = counted(clicks(app))
    app.publish(
        "pairs", hr.join(minutes, minutes, on="page", after=HOUR, delay=MINUTE, prefix="r_")
    )
    app.view("both", counted(hr.merge(minutes, minutes), HOUR))
    names = ["both.1", "both.2", "both", "pairs.left", "pairs.right", "pairs"]
    assert list(chained(app)) == names


def test_only_final_windows_are_passed_on() -> None:
    app = hr.App("shop")
    minutes = counted(clicks(app))
    app.view("minutes", minutes)
    app.view("top", counted(hr.top(minutes, 3, by="n"), HOUR))
    steps = chained(app)
    assert steps["minutes"].stream == minutes
    assert steps["top.part"].computed == minutes.settled
    assert minutes.settled.emit == "final"
    assert minutes.settled.settled == minutes.settled


TIMES: dict[str, tuple[Callable[[hr.Stream], hr.Stream], str | None]] = {
    "tumbling": (counted, "window_end - INTERVAL 1 MICROSECOND"),
    "sliding": (lambda stream: counted(stream, window=hr.sliding(MINUTE)), "window_end"),
    "ranking": (
        lambda stream: hr.top(counted(stream), 3, by="n"),
        "window_end - INTERVAL 1 MICROSECOND",
    ),
    "filtered": (lambda stream: hr.filter(counted(stream), "n > 1"), None),
    "rows": (lambda stream: hr.deduplicate(stream, by="page", ttl=HOUR, delay=MINUTE), "at"),
    "renamed": (
        lambda stream: hr.deduplicate(
            hr.select(stream, "page", since="at"), by="page", ttl=HOUR, delay=MINUTE
        ),
        "since",
    ),
}


@pytest.mark.parametrize("case", TIMES)
def test_passed_on_rows_have_the_event_time_at_which_they_become_final(case: str) -> None:
    make, expected = TIMES[case]
    app = hr.App("shop")
    app.view("next", counted(hr.derive(make(clicks(app)), page="page"), HOUR))
    (topic,) = [step.passes_on for step in steps_of(app) if step.passes_on is not None]
    assert topic is not None
    assert topic.event_time == (expected or "window_end - INTERVAL 1 MICROSECOND")
    assert topic.settings.skew is None


def test_an_event_time_that_is_an_expression_is_passed_on_with_its_columns() -> None:
    app = hr.App("shop")
    source = clicks(app, "timestamp_millis(ms)")
    kept = hr.select(source, "page", "ms", more="user + 1")
    assert kept.time == "timestamp_millis(ms)"
    assert hr.derive(source, ms="ms + 1").time is None
    assert hr.explode(source, "split(page, '/')", into="ms").time is None
    assert hr.explode(source, "split(page, '/')", into="user").time == "timestamp_millis(ms)"


def test_a_view_of_rows_keeps_the_latest_of_each_key() -> None:
    app = hr.App("shop")
    source = clicks(app)
    app.view("last", hr.select(source, "page", "user"), key="page")
    app.view("fast", hr.filter(source, "ms < 10"), key=["page", "user"])
    app.view("pairs", hr.deduplicate(source, by="page", ttl=HOUR, delay=MINUTE), key="page")
    steps = chained(app)
    assert list(steps) == ["last", "fast.part", "fast", "pairs.part", "pairs"]
    assert steps["last"].topics == ("clicks",)
    view = steps["fast"].view
    assert view is not None
    assert view.key == ("page", "user")


def test_a_change_of_an_inner_step_is_one_of_all_steps_after_it() -> None:
    def declared(size: timedelta) -> dict[str, Step]:
        app = hr.App("shop")
        app.view("hours", counted(counted(clicks(app), size), HOUR))
        return chained(app)

    before, now = declared(MINUTE), declared(2 * MINUTE)
    assert all(fingerprint(before[name]) != fingerprint(now[name]) for name in before)
    assert fingerprint(before["hours"]) == fingerprint(declared(MINUTE)["hours"])
    told = differences(definition_of(before["hours"]), definition_of(now["hours"]))
    assert told == ["in its inner step the window was tumbling 1m and is tumbling 2m"]


def test_a_name_that_an_inner_step_has_is_refused() -> None:
    app = hr.App("shop")
    minutes = counted(clicks(app))
    app.view("hours", counted(minutes, HOUR))
    app.view("hours.part", minutes)
    with pytest.raises(InvalidPipeline, match=r"'hours\.part'"):
        steps_of(app)


def test_steps_wait_for_those_whose_output_they_read_but_not_in_a_circle() -> None:
    app = hr.App("shop")
    source = clicks(app)
    back = app.topic("copy", schema="page string, at timestamp", event_time="at")
    app.view("minutes", counted(hr.filter(counted(back), "n > 1"), HOUR))
    app.publish("copy", hr.select(source, "page", "at"))
    assert writers_of(steps_of(app)) == {
        "copy": (), "minutes.part": ("copy",), "minutes": ("minutes.part",),
    }  # fmt: skip
    names = [[step.name for step in stage] for stage in stages_of(steps_of(app))]
    assert names == [["copy"], ["minutes.part"], ["minutes"]]

    app.publish("clicks", hr.derive(back, user="1", ms="1"))
    assert set(writers_of(steps_of(app)).values()) == {()}


def test_inner_steps_are_explained_with_what_they_pass_on() -> None:
    app = hr.App("shop")
    minutes = counted(clicks(app))
    app.view("hours", counted(hr.filter(minutes, "n > 1"), HOUR))
    app.publish("too_late", minutes.late)
    inner, last = app.explain().steps
    assert (inner.name, last.name) == ("hours.part", "hours")
    assert ("publishes", "final panes to topic shop.hours.part") in inner.facts
    assert ("publishes", "late rows to topic too_late") in inner.facts
    assert ("then", "keeps rows where n > 1") in last.facts
    assert last.facts[0][1].startswith("topic shop.hours.part, with the event time window_end - ")


def test_the_topic_of_an_inner_step_has_no_schema_before_it_has_run() -> None:
    app = hr.App("shop")
    app.view("hours", counted(counted(clicks(app)), HOUR))
    (part,) = sources(chained(app)["hours"].stream)
    assert isinstance(part, Part)
    assert part.topic.schema is None
    assert part.columns == ("page", "window_start", "window_end", "n")


def test_a_chain_does_not_run_in_real_time() -> None:
    app = hr.App("shop")
    rules = {"fast": hr.rule("ms < 1")}
    flags: dict[str, Any] = {"by": "page", "within": MINUTE, "delay": MINUTE, "rules": rules}
    first = hr.alerts(clicks(app), event="user", **flags)
    app.publish("busy", hr.filter(first, "cut"))
    with pytest.raises(InvalidPipeline, match="passed on batch by batch"):
        check_real_time(app, "kafka://127.0.0.1:1")
