"""`explain` describes an application, without Spark and without a log."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

import headrace as hr
from headrace.operators.window.windows import AnyWindow
from headrace.pipeline.stream import Source
from headrace.plan.steps import steps_of

MINUTE = timedelta(minutes=1)
LATENESS = hr.Lateness(delay=timedelta(seconds=10), grace=MINUTE)
SCHEMA = "url string, user string, ms int, at timestamp"


def views(app: hr.App, name: str = "views") -> Source:
    return app.topic(name, schema=SCHEMA, key="url", event_time="at")


def everything() -> hr.App:
    """An application with a step of every kind."""
    app = hr.App("site")
    one, other = views(app), views(app, "more")
    slow = hr.filter(hr.merge(one, other), "ms > 100")
    counts = hr.aggregate(
        slow, by="url", window=hr.tumbling(MINUTE), lateness=LATENESS, hits=hr.count()
    )
    app.view("slow", counts)
    app.publish("slow.updates", counts)
    app.publish("slow.late", counts.late)
    app.publish("named", hr.select(one, "user", "at", seconds="ms / 1000"))
    app.publish(
        "visits",
        hr.aggregate(
            one,
            by="user",
            window=hr.session(MINUTE),
            lateness=LATENESS,
            emit="final",
            longest=hr.max("ms"),
        ),
    )
    return app


def test_an_application_is_explained_step_by_step() -> None:
    app = everything()
    explained = app.explain()
    assert [step.name for step in explained.steps] == [step.name for step in steps_of(app)]
    assert str(explained["slow"]) == (
        "step slow\n"
        "  reads      topic views, keyed by url, with the event time at\n"
        "  reads      topic more, keyed by url, with the event time at\n"
        "  time       follows the slowest topic\n"
        "  then       merges 2 streams\n"
        "  then       keeps rows where ms > 100\n"
        "  counts     by url: hits = count(*)\n"
        "  window     tumbling, 1m\n"
        "  lateness   a delay of 10s and a grace of 1m: the watermark is the highest event time "
        "minus 10s\n"
        "  holds      each url and window, until the highest event time is 70s after the end of "
        "its window\n"
        "  late       a row that arrives when the highest event time is 70s or more after the end "
        "of its window\n"
        "  emits      from the first row on; on time 10s after the end of its window, then "
        "corrected\n"
        "  keeps      view slow, a row for each url and window_start\n"
        "  changelog  each change of a row, in topic site.slow.changes\n"
        "  publishes  early, on-time and late panes to topic slow.updates\n"
        "  publishes  late rows to topic slow.late\n"
        "  dead       rows without an event time, or ahead of the clock, go to topic site.dead"
    )
    assert (
        repr(explained)
        == str(explained)
        == "\n\n".join(["application site", *map(str, explained.steps)])
    )


def test_a_step_without_windows_holds_nothing() -> None:
    explained = everything().explain()["named"]
    assert explained["then"] == "keeps user and at; computes seconds = ms / 1000"
    assert explained["holds"] == "nothing: each row is handled by itself"
    assert explained["publishes"] == "each row once, to topic named"


def test_what_is_final_is_held_until_nothing_can_change_it() -> None:
    explained = everything().explain()["visits"]
    # A session may be merged with an older one until its gap is over.
    assert explained["holds"].endswith(
        "until the highest event time is 130s after the end of its session"
    )
    assert explained["late"].endswith("is 70s or more after the end of its session")
    assert explained["emits"].startswith("once, when nothing can change any more: 130s after")
    assert explained["publishes"] == "final panes to topic visits"


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (hr.hopping(MINUTE * 10, MINUTE), "hopping, 10m, one every 1m"),
        (hr.tumbling(MINUTE * 60, offset=MINUTE), "tumbling, 1h, from 1m on"),
        (hr.sliding(MINUTE), "the 1m up to each row"),
        (hr.running(hr.FOREVER), "none: totals are kept for ever"),
    ],
)
def test_every_window_has_words(window: AnyWindow, said: str) -> None:
    app = hr.App("site")
    made = hr.aggregate(
        views(app), by="url", window=window, lateness=LATENESS, p=hr.quantile("ms", 0.5)
    )
    app.view("v", made)
    explained = app.explain()["v"]
    assert explained["window"] == said
    assert explained["counts"] == "by url: p = quantile(ms, 0.5)"


def test_a_topic_whose_time_goes_on_by_itself_is_told() -> None:
    app = hr.App("site")
    quiet = app.topic("quiet", schema=SCHEMA, event_time="at", settings={"idle": "30s"})
    app.publish("all", quiet)
    assert app.explain()["all"]["time"] == "follows the clock when quiet is idle for 30s"


def test_explaining_needs_no_spark() -> None:
    program = (
        "import sys\n"
        "from headrace import App\n"
        "app = App('site')\n"
        f"app.publish('all', app.topic('views', schema={SCHEMA!r}, event_time='at'))\n"
        "print(app.explain())\n"
        "sys.exit('pyspark was imported' if 'pyspark' in sys.modules else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "step all" in done.stdout
