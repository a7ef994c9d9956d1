"""Real time: supported steps, and refusals of the others."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.application.live import _check_slots
from headrace.application.run import start
from headrace.clock import SECOND, VirtualClock
from headrace.errors import InvalidPipeline, InvalidSetting, LawBroken
from headrace.log.kafka import client
from headrace.log.kafka.configs import to_configs
from headrace.log.settings import MIB, TopicSettings
from headrace.pipeline.stream import Source
from headrace.plan.law import Law
from headrace.plan.steps import steps_of
from headrace.runtime.realtime.counting import Counting, check
from headrace.runtime.realtime.qualify import check_real_time, why_not_real_time
from headrace.runtime.realtime.settings import WRITING, RealTime

MINUTE = timedelta(minutes=1)
NOW = hr.Lateness(delay=timedelta(0), grace=timedelta(0))
BROKER = "kafka://127.0.0.1:9092"


def topic(app: hr.App, name: str = "uses", **settings: Any) -> Source:
    schema = "use string, card string, amount int, shops array<string>, at timestamp"
    return app.topic(name, schema=schema, key="card", event_time="at", settings=settings)


def counted(stream: hr.Stream, window: Any = None, **more: Any) -> hr.Aggregation:
    return hr.aggregate(
        stream, by="card", window=window or hr.tumbling(MINUTE), lateness=NOW, n=hr.count(), **more
    )


def flagged(stream: hr.Stream) -> hr.Alerts:
    rules = {"often": "size(recent) > 5"}
    return hr.alerts(stream, by="card", event="use", within=MINUTE, delay=MINUTE, rules=rules)


def known(app: hr.App, **how: Any) -> hr.Enriched:
    cards = app.topic(
        "cards", schema="card string, holder string, since timestamp", key="card",
        event_time="since", settings={"cleanup": "compact"},
    )  # fmt: skip
    return hr.enrich(topic(app), hr.table(cards, key="card"), on="card", **how)


QUALIFY: dict[str, Callable[[hr.App], hr.Stream]] = {
    "a topic": topic,
    "filtered": lambda app: hr.filter(topic(app), "amount > 5"),
    "other columns": lambda app: hr.select(topic(app), "card", more="amount + 1"),
    "exploded": lambda app: hr.explode(topic(app), "shops", into="shop"),
    "two topics": lambda app: hr.merge(topic(app), topic(app, "more")),
    "alerts": lambda app: flagged(hr.filter(topic(app), "amount > 5")),
    "alerts with a table": lambda app: flagged(known(app, mode="latest")),
}

REFUSED: dict[str, tuple[Callable[[hr.App], hr.Stream], str]] = {
    "a window": (lambda app: counted(topic(app)), "when the watermark passes its end"),
    "final": (lambda app: counted(topic(app), emit="final"), "emits a window when it is final"),
    "sessions": (lambda app: counted(topic(app), hr.session(MINUTE)), "merges sessions"),
    "sliding": (lambda app: counted(topic(app), hr.sliding(MINUTE)), "sliding window"),
    "a join": (
        lambda app: hr.join(
            topic(app), topic(app, "more"), on="card", after=MINUTE, delay=MINUTE, prefix="their_"
        ),
        "joins two streams batch by batch",
    ),
    "a table as of": (lambda app: known(app, wait=MINUTE), "looks rows up batch by batch"),
    "a table alone": (lambda app: known(app, mode="latest"), "hr.alerts(...) looks up"),
    "duplicates": (
        lambda app: hr.deduplicate(topic(app), by="use", ttl=MINUTE, delay=MINUTE),
        "the keys seen so far",
    ),
    "the same topic twice": (
        lambda app: hr.merge(
            hr.filter(topic(app), "amount > 5"), hr.filter(topic(app), "amount < 2")
        ),
        "reads 'uses' 2 times",
    ),
}


@pytest.mark.parametrize("case", QUALIFY)
def test_what_is_done_to_each_row_and_alerts_run_in_real_time(case: str) -> None:
    app = hr.App("cards", latency="real-time")
    app.publish("out", QUALIFY[case](app))
    assert [step.name for step in check_real_time(app, BROKER)] == ["out"]


@pytest.mark.parametrize("case", REFUSED)
def test_a_step_that_cannot_is_refused_with_its_name_the_reason_and_its_line(case: str) -> None:
    make, reason = REFUSED[case]
    app = hr.App("cards", latency="real-time")
    app.publish("out", make(app))
    with pytest.raises(InvalidPipeline) as refusal:
        check_real_time(app, BROKER)
    assert "Step 'out' cannot run in real time" in refusal.value.message
    assert reason in str(refusal.value)
    assert "test_real_time.py" in refusal.value.hint


def test_a_view_is_refused_at_the_line_that_declares_it() -> None:
    app = hr.App("cards", latency="real-time")
    view = app.view("per_card", counted(topic(app)))
    (step,) = steps_of(app)
    reason = why_not_real_time(step)
    assert reason is not None
    assert "app.view" in linecache.getline(reason.where.file, reason.where.line)
    assert reason.where == view.where


def test_late_rows_go_to_one_topic_in_real_time() -> None:
    app = hr.App("cards")
    alerts = flagged(topic(app))
    app.publish("alerts", alerts)
    app.publish("late", alerts.late)
    assert [step.late for step in check_real_time(app, BROKER)] == [("late",)]
    app.publish("late.too", alerts.late)
    with pytest.raises(InvalidPipeline, match="go to 2 topics"):
        check_real_time(app, BROKER)


def test_an_embedded_log_has_no_real_time() -> None:
    app = hr.App("cards", latency="real-time")
    app.publish("out", topic(app))
    with pytest.raises(InvalidPipeline, match=r"cannot run in real time on file:\./data"):
        start(app, "file:./data")


def test_a_run_in_real_time_does_not_catch_up_and_end() -> None:
    app = hr.App("cards")
    app.publish("out", topic(app))
    with pytest.raises(InvalidPipeline, match="does not end by itself"):
        start(app, BROKER, until_caught_up=True, latency="real-time")


def test_a_latency_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="Use 'micro-batch' or 'real-time'"):
        hr.App("cards", latency="soon")  # type: ignore[arg-type]


def test_a_checkpoint_shorter_than_spark_takes_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="5 seconds or more"):
        RealTime(checkpoint=timedelta(seconds=1))
    with pytest.raises(InvalidSetting, match="hold cannot be"):
        RealTime(hold=-MINUTE)


def test_spark_may_send_what_headraces_own_producers_may() -> None:
    assert {int(option) for option in WRITING.values()} == {client._MESSAGE_BYTES}
    largest = to_configs(TopicSettings(max_record_bytes=32 * MIB))["max.message.bytes"]
    assert int(largest) < client._MESSAGE_BYTES


class Growing:
    """A stub of Spark and its context on a cluster whose executors start one by one."""

    def __init__(self, master: str, most: int) -> None:
        self.sparkContext = self
        self.master = master
        self._most = most
        self._cores = 0

    @property
    def defaultParallelism(self) -> int:
        self._cores = min(self._cores + 1, self._most)
        return max(2, self._cores)


def test_executors_of_a_cluster_are_waited_for() -> None:
    clock = VirtualClock()
    few: Any = Growing("spark://127.0.0.1:7077", 4)
    _check_slots(few, 4, clock)
    assert 0 < clock.monotonic() < SECOND
    with pytest.raises(InvalidSetting, match=r"run 4 tasks at once, and real time needs 5"):
        _check_slots(few, 5, clock)
    assert clock.monotonic() > 20 * SECOND


def test_a_local_spark_is_refused_at_once_if_it_runs_too_few_tasks() -> None:
    clock = VirtualClock()
    local: Any = Growing("local[4]", 4)
    with pytest.raises(InvalidSetting, match=r"local\[5\]"):
        _check_slots(local, 5, clock)
    assert clock.monotonic() == 0


PROGRESS: dict[str, Any] = {
    "sources": [{"numInputRows": 10}, {"numInputRows": 5}],
    "observedMetrics": {
        "read-0": {"n": 1},
        "filtered-0": {"n": 4},
        "judged": {"dead": 2, "late": 3, "counted": 5},
    },
    "stateOperators": [{"numRowsDroppedByWatermark": 0}],
}


def counting() -> Counting:
    made = Counting()
    made._read.append("read-0")
    made.counters.filtered.append("filtered-0")
    return made


def test_every_row_of_a_batch_is_accounted_for() -> None:
    law = counting().law(PROGRESS)
    assert law == Law(rows=15, tombstones=1, dead=2, filtered=4, pairs=8, counted=5, late=3)
    check("out", law, PROGRESS)


def test_a_row_that_is_missing_stops_the_step() -> None:
    more = {**PROGRESS, "sources": [{"numInputRows": 16}]}
    with pytest.raises(LawBroken, match="cannot account for every row"):
        check("out", counting().law(more), more)


def test_a_row_that_spark_drops_by_itself_stops_the_step() -> None:
    more = {**PROGRESS, "stateOperators": [{"numRowsDroppedByWatermark": 7}]}
    with pytest.raises(LawBroken, match="Spark dropped 7 rows"):
        check("out", counting().law(more), more)
