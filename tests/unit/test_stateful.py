"""Python state: valid declarations, and valid results of a function."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import InvalidPipeline
from headrace.language.differences import differences
from headrace.operators.stateful.bisect import MOST_FAILURES, Stopped
from headrace.operators.stateful.bucket import Rules, Visit, visit
from headrace.pipeline.stream import Source
from headrace.plan.steps import definition_of, fingerprint, steps_of
from tests.property import folds
from tests.property.test_buckets import rules_of
from tests.refusals import text_of

SECOND = timedelta(seconds=1)
STATE, OUTPUT = "rows bigint", "k string, rows bigint"


def topic(app: hr.App | None = None) -> Source:
    app = app or hr.App("a")
    return app.topic("events", schema="k string, n int, at timestamp", event_time="at")


def counts(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Count the rows of each key."""
    both = pa.concat_tables(
        [state, events.select(["k"]).append_column("rows", pa.array([1] * len(events), pa.int64()))]
    )
    made = both.group_by("k").aggregate([("rows", "sum")]).rename_columns(["k", "rows"])
    return made, made


def declare(function: Any = counts, **other: Any) -> hr.Stateful:
    choices = {"by": "k", "state": STATE, "output": OUTPUT, "delay": SECOND, "ttl": 60 * SECOND}
    return hr.stateful(topic(), function, **{**choices, **other})


def rows(rules: Rules, keys: list[Any], *, at: int = 0) -> pa.Table:
    """A row for each of some keys."""
    made: list[dict[str, Any]] = []
    for number, key in enumerate(keys):
        made.append(dict.fromkeys(rules.order, 0) | {"k": key, "n": number, "_time": at})
        made[-1] |= {"at": at, "_offset": number}
    return pa.Table.from_pylist(made, rules.rows)


def give(function: Any, keys: list[Any], **other: Any) -> Visit:
    """The result for rows of these keys."""
    rules = rules_of(declare(function, order="arrival", **other))
    return visit(rules, rules.kept.empty_table(), rules.rows.empty_table(), rows(rules, keys), 0)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"by": ()}, "needs a key"),
        ({"by": "kk"}, "no column 'kk'"),
        ({"state": "k string"}, "already in its key"),
        ({"state": "rows bigints"}, "Cannot parse the state"),
        ({"state": "timer bigint"}, "not a timestamp"),
        ({"output": "_k string"}, "reserved"),
        ({"delay": -SECOND}, "negative"),
        ({"ttl": 0 * SECOND}, "must be positive"),
        ({"order": "random"}, "order cannot be"),
        ({"on_error": "ignore"}, "on_error cannot be"),
        ({"buckets": 0}, "buckets cannot be 0"),
        ({"buckets": 1_000_000}, "each is visited"),
        ({"event_time": "when"}, "no column 'when'"),
        ({"event_time": "rows"}, "must be a timestamp"),
        ({"with_key": True}, "same name"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused_at_the_users_line(
    other: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidPipeline, match=r"test_stateful\.py") as refused:
        declare(**other)
    assert words in text_of(refused.value)


def test_output_without_an_event_time_is_not_read_and_a_view_of_it_needs_a_key() -> None:
    with pytest.raises(InvalidPipeline, match="have lost their event time"):
        hr.stateful(declare(), counts, by="k", state=STATE, output=OUTPUT, delay=SECOND, ttl=SECOND)
    with pytest.raises(InvalidPipeline, match="unique"):
        hr.App("a").view("counts", declare())


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda state, events: None, "returned nothing"),
        (lambda state, events: (state, 3), "output it returned is of type int"),
        (lambda state, events: (events, events), "lacks rows and has undeclared n, at"),
        (
            lambda state, events: (state, pa.table({"k": ["a"], "rows": ["1"]})),
            "column rows of the output it returned is string, not int64",
        ),
        (
            lambda state, events: (state, pa.table({"k": ["a"], "rows": [0.5]})),
            "column rows of the output it returned is double",
        ),
        (
            lambda state, events: (pa.table({"k": ["?"], "rows": [1]}), counts(state, events)[1]),
            "a key it was not given: {'k': '?'}",
        ),
        (
            lambda state, events: (
                pa.table({"k": ["a", "a"], "rows": [1, 2]}),
                counts(state, events)[1],
            ),
            "has the key {'k': 'a'} twice",
        ),
        (
            lambda state, events: (
                state,
                pa.table({"k": pa.array([b"\xff"]).view(pa.string()), "rows": [1]}),
            ),
            "column k of the output it returned is not valid Arrow: Invalid UTF8",
        ),
        (lambda state, events: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_what_a_function_may_not_do_stops_it(function: Any, words: str) -> None:
    with pytest.raises(Stopped) as stopped:
        give(function, ["a"])
    assert words in stopped.value.failed.failure.reason


def test_a_function_may_give_back_whatever_speaks_arrow_and_fits() -> None:
    class Frame:
        """A frame that exports Arrow, as Polars and pandas do."""

        def __init__(self, table: pa.Table) -> None:
            self._table = table

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self._table.__arrow_c_stream__(requested_schema)

    def narrow(state: pa.Table, events: pa.Table) -> tuple[Any, Any]:
        made = counts(state, events)[0]
        small = made.set_column(1, "rows", made["rows"].cast(pa.int32()))
        return Frame(small.select(["rows", "k"])), Frame(small.to_batches()[0])

    made = give(narrow, ["a", "b", "a"])
    assert made.kept.select(["k", "rows"]).to_pylist() == [
        {"k": "a", "rows": 2},
        {"k": "b", "rows": 1},
    ]
    assert made.outputs[0].schema.field("rows").type == pa.int64()


def failing(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    if "bad" in events["k"].to_pylist():
        raise ValueError("no such key")
    return counts(state, events)


def test_a_failure_names_the_line_and_the_first_row_of_the_key() -> None:
    with pytest.raises(Stopped) as stopped:
        give(failing, [*"abcdefgh", "bad", *"ijk", "bad"])
    failed = stopped.value.failed
    assert failed.failure.reason == "ValueError: no such key"
    line = failing.__code__.co_firstlineno + 2
    assert failed.failure.where.endswith(f"test_stateful.py:{line}")
    assert failed.rows["n"].to_pylist() == [8, 12]


def test_rows_of_keys_that_fail_are_set_aside_and_the_rest_goes_on() -> None:
    made = give(failing, [*"abcd", "bad", "a", "bad", None], on_error="dead letter")
    assert [failed.rows["n"].to_pylist() for failed in made.failed] == [[4, 6]]
    found = {row["k"]: row["rows"] for row in made.kept.to_pylist()}
    assert found == {"a": 2, "b": 1, "c": 1, "d": 1, None: 1}
    outputs = [row for table in made.outputs for row in table.to_pylist()]
    assert {row["k"]: row["rows"] for row in outputs} == found


def test_a_key_that_fails_has_the_state_that_it_had() -> None:
    rules = rules_of(declare(failing, order="arrival", on_error="dead letter"))
    kept = pa.Table.from_pylist([{"k": "bad", "rows": 5, "_newest": 0}], rules.kept)
    made = visit(rules, kept, rules.rows.empty_table(), rows(rules, ["bad", "a"], at=7), 0)
    assert {row["k"]: (row["rows"], row["_newest"]) for row in made.kept.to_pylist()} == {
        "bad": (5, 0),
        "a": (1, 7),
    }


def test_a_function_that_fails_for_everything_is_given_up() -> None:
    def never(state: pa.Table, events: pa.Table) -> Any:
        raise ValueError

    keys = [str(n) for n in range(2 * MOST_FAILURES)]
    with pytest.raises(Stopped) as stopped:
        give(never, keys, on_error="dead letter")
    assert stopped.value.many


def test_a_function_that_fails_only_for_several_keys_at_once_stops() -> None:
    def lonely(state: pa.Table, events: pa.Table) -> Any:
        if len(events) > 1:
            raise ValueError("one at a time")
        return counts(state, events)

    with pytest.raises(Stopped):
        give(lonely, ["a", "b"])
    assert not give(lonely, ["a", "b"], on_error="dead letter").failed


def test_a_timer_that_does_not_end_is_given_up() -> None:
    def again(state: pa.Table, events: pa.Table) -> Any:
        later = pa.array([(n or 0) + 1 for n in state["timer"].cast(pa.int64()).to_pylist()])
        kept = state if len(state) else events.select(["k"]).append_column("timer", pa.array([1]))
        return (
            kept.set_column(1, "timer", (later if len(state) else pa.array([1])).cast(MOMENT)),
            pa.table({"k": pa.array([], pa.string()), "rows": pa.array([], pa.int64())}),
        )

    rules = rules_of(declare(again, state="timer timestamp", ttl=timedelta(days=1)))
    with pytest.raises(Stopped, match="a timer fired"):
        visit(rules, rules.kept.empty_table(), rules.rows.empty_table(), rows(rules, ["a"]), 10**9)


MOMENT = pa.timestamp("us", tz="UTC")


def test_one_key_with_many_rows_is_one_call() -> None:
    calls = []

    def counted(state: pa.Table, events: pa.Table) -> Any:
        calls.append(len(events))
        return counts(state, events)

    rules = rules_of(declare(counted, order="arrival"))
    many = 300_000
    table = rows(rules, ["hot"]).take(pa.array(np.zeros(many, np.int64)))
    made = visit(rules, rules.kept.empty_table(), rules.rows.empty_table(), table, 0)
    assert calls == [many]
    assert made.kept["rows"].to_pylist() == [many]


def test_a_changed_function_is_another_step_unless_it_has_a_version() -> None:
    def one(state: Any, events: Any) -> Any:
        return state, events

    def prints(function: Any, **other: Any) -> tuple[str, Any]:
        app = hr.App("a")
        choices = {"by": "k", "state": STATE, "output": OUTPUT, "delay": SECOND, "ttl": SECOND}
        app.publish("out", hr.stateful(topic(app), function, **{**choices, **other}))
        (step,) = steps_of(app)
        return fingerprint(step), step

    first = one

    def one(state: Any, events: Any) -> Any:  # type: ignore[no-redef]
        return state, events.slice(0, 1)

    assert prints(first)[0] == prints(first, on_error="dead letter")[0]
    assert prints(first)[0] != prints(one)[0]
    assert prints(first, version="1")[0] == prints(one, version="1")[0]
    assert prints(one, version="1")[0] != prints(one, version="2")[0]
    before, now = (
        definition_of(prints(f, ttl=ttl)[1]) for f, ttl in ((first, SECOND), (one, 2 * SECOND))
    )
    changes = differences(before, now)
    assert any("function" in change for change in changes), changes
    assert "the ttl was 1s and is 2s" in changes


def test_it_says_what_it_does() -> None:
    app = hr.App("a")
    step = hr.stateful(
        topic(app), folds.visits, by="k", state=folds.VISITS_STATE, output=folds.VISITS,
        delay=10 * SECOND, ttl=60 * SECOND, on_error="dead letter",
    )  # fmt: skip
    app.publish("visits", step)
    app.publish("visits.late", step.late)
    explained = app.explain()["visits"]
    assert explained["calls"].startswith("visits (")
    assert "in event-time order" in explained["calls"]
    assert "10s past it" in explained["holds"]
    assert "1m past its newest row, in 8 buckets" in explained["holds"]
    assert "timer" in explained["timer"]
    assert "dead letters" in explained["fails"]
    assert "late rows to topic visits.late" in explained["publishes"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"steps": []}, "need distinct names"),
        ({"steps": [("a", "n = 1"), ("a", "n = 2")]}, "need distinct names"),
        ({"steps": [("a", "m = 1")]}, "no column 'm'"),
        ({"steps": [("a", "n = 1", 0)]}, "cannot occur 0 times"),
        ({"steps": [("a", "n = 1", 33)]}, "too long"),
        ({"steps": [("a",)]}, "Invalid step"),
        ({"steps": [("k", "n = 1")]}, "two columns 'k'"),
        ({"steps": [("_a", "n = 1")]}, "cannot be called"),
        ({"by": "who"}, "no key column 'who'"),
        ({"within": 0 * SECOND}, "must be positive"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused(other: dict[str, Any], words: str) -> None:
    choices = {"by": "k", "steps": [("a", "n = 1")], "within": SECOND, "delay": SECOND}
    with pytest.raises(InvalidPipeline, match=r"test_stateful\.py") as refused:
        hr.pattern(topic(), **{**choices, **other})
    assert words in text_of(refused.value)


def test_a_pattern_needs_the_time_as_the_topic_has_it() -> None:
    steps = [("a", "n = 1")]
    kept = hr.select(topic(), "k", "n", moment="at")
    made = hr.pattern(kept, by="k", steps=steps, within=SECOND, delay=SECOND)
    assert made.input.columns == ("k", "moment", "a")
    assert made.columns == ("k", "started_at", "ended_at", "a_first", "a_last")
    for lost in (hr.select(topic(), "k", "n"), hr.derive(topic(), at="at + interval 1 day")):
        with pytest.raises(InvalidPipeline, match="event time"):
            hr.pattern(lost, by="k", steps=steps, within=SECOND, delay=SECOND)
