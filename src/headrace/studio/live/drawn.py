"""Parts of the pages of pipelines."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import htpy as h
from htpy import Element, Node

from headrace.clock import SECOND, to_datetime
from headrace.plan.batch import Timing
from headrace.studio.live.charts import histogram
from headrace.studio.live.crashing import Crash
from headrace.studio.live.pipeline_states import PipelineNow, Sampled, State, StepNow
from headrace.studio.live.receipt import Receipt, StepReceipt
from headrace.studio.pages import Fact, badge, facts, failure, table

_BATCHES = 30
_CALM = {"watermark before the window's end", "grace not over", "behind"}
"""Waits of a pipeline that is well."""


def state_badge(state: State) -> Element:
    """The state of an application."""
    return badge(state.word, state.kind)


def clock_time(micros: int | None) -> str:
    """A time of day in UTC, with the date."""
    return "–" if micros is None else f"{to_datetime(micros):%Y-%m-%d %H:%M:%S}Z"


def rate_text(rate: float) -> str:
    """Rows per second, rounded."""
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def kind_of(now: PipelineNow, step: StepNow) -> str:
    """The colour of a step: bad if it waits for somebody, good if it runs."""
    waits = {wait.name for wait in step.waits}
    if now.state.word in ("failed", "killed") or not step.law.holds:
        return "bad"
    if any(found.subject == step.name for found in now.findings):
        return "bad"
    if waits & {"not running", "held back by a topic", "no event time", "nothing counts"}:
        return "bad"
    if now.state.word == "running":
        return "good"
    return "" if step.ran else "muted"


def listed(found: Sequence[PipelineNow]) -> Node:
    """A table of pipelines."""
    return table(
        ("application", "state", "steps", "rows/s", "lag", "watermark"),
        [
            (
                h.a(href=f"/pipelines/{now.app}")[now.app],
                [
                    state_badge(now.state),
                    " ",
                    h.span(".hint")[now.state.details.partition("\n")[0]],
                ],
                f"{len(now.steps)}",
                rate_text(now.rate),
                h.span(class_="k-warn" if now.lag else None)[f"{now.lag:,}"],
                clock_time(
                    min((s.watermark for s in now.steps if s.watermark is not None), default=None)
                ),
            )
            for now in found
        ],
        numeric=("steps", "rows/s", "lag"),
        empty=[
            "No application has run on this log yet. Name yours: ",
            h.code["headrace studio MODULE:APP"],
        ],
    )


def steps_table(now: PipelineNow) -> Node:
    """Each step: its law spelled out, rates, lag, watermark and batch times."""
    return table(
        ("step", "every row is accounted for", "rows/s", "lag", "watermark", "state", "batch"),
        [
            (
                h.strong[step.name],
                h.span(class_=None if step.law.holds else "k-bad")[
                    str(step.law) if step.ran else "it has not run yet"
                ],
                rate_text(step.rate),
                h.span(class_="k-warn" if step.lag else None)[f"{step.lag:,}"],
                clock_time(step.watermark),
                _held(step),
                _batches(step.timings),
            )
            for step in now.steps
        ],
        numeric=("rows/s", "lag"),
    )


def _held(step: StepNow) -> str:
    if step.checkup is None:
        last = step.timings[-1] if step.timings else None
        return "–" if last is None else f"{last.state_rows:,} rows"
    held = step.checkup.held
    parts = [f"{held.panes:,} open windows"] if held.panes else []
    size = held.table_bytes + held.state_bytes
    parts += [f"{size / 1024:,.0f} KiB"] if size else []
    return ", ".join(parts) or "–"


def _batches(timings: Sequence[Timing]) -> str:
    """The durations of the last batches: the middle one and the longest."""
    times = sorted(timing.total for timing in timings[-_BATCHES:])
    if not times:
        return "–"
    return f"{times[len(times) // 2]:,} ms, at most {times[-1]:,} ms"


def wait_list(now: PipelineNow) -> Node:
    """The doctor's findings, and the waits of each step."""
    if now.declared is None:
        return h.p(".empty")["Only for applications that the studio was given."]
    if now.unknown:
        return h.p(".empty")[now.unknown]
    found = [
        h.li[
            h.strong(".k-bad")[f"{finding.subject}: {finding.what}"],
            h.ul[(h.li[text] for text in finding.evidence)],
            h.span(".hint")[finding.remedy],
        ]
        for finding in now.findings
    ]
    waits = [
        h.li[
            h.strong(class_=None if wait.name in _CALM else "k-bad")[step.name],
            f": {wait.text}. ",
            h.span(".hint")[wait.remedy],
        ]
        for step in now.steps
        for wait in step.waits
    ]
    if not found and not waits:
        return h.p(".empty")["Nothing: every step has caught up, and every window is final."]
    return h.ul(".waits")[found, waits]


def series(samples: Sequence[Sampled]) -> Node:
    """Rows per second and lag of the last minutes."""
    if len(samples) < 2:
        return h.p(".empty")["The studio takes a sample every second, from now on."]
    rows = [
        [
            after.at / SECOND,
            round(
                max(0, sum(after.rows.values()) - sum(before.rows.values()))
                * SECOND
                / max(1, after.monotonic - before.monotonic),
                1,
            ),
            after.lag,
        ]
        for before, after in itertools.pairwise(samples)
    ]
    given = json.dumps({"labels": ["time", "rows/s", "lag"], "rows": rows})
    words = f"{rows[-1][1]:,.0f} rows per second, lag {samples[-1].lag:,} rows"
    return h.figure(".panel")[
        h.figcaption[f"Now: {words}"],
        h.div(
            ".series", hx_morph_skip_children=True, data_series=given, role="img", aria_label=words
        ),
    ]


def durations(now: PipelineNow) -> Node:
    """A histogram of the last batches of each step."""
    return h.div(".histograms")[
        (
            histogram(
                [timing.total for timing in step.timings],
                f"{step.name}: its last {len(step.timings):,} batches, each from the start of "
                "reading to the stored results",
                "No batch yet.",
            )
            for step in now.steps
        )
    ]


def crash_of(crash: Crash | None) -> Node:
    """A crash and how the recovery goes, then its receipt."""
    if crash is None:
        return None
    if crash.failure:
        return failure("It did not recover", crash.failure)
    if crash.receipt is None:
        return h.section("#crash")[
            h.h2["Recovering"],
            h.p[
                f"Process {crash.killed} was killed with kill -9. Process {crash.restarted} starts "
                f"where the stored results end. {crash.left:,} rows that were in the log at that "
                "moment are not stored yet."
            ],
        ]
    return h.section("#crash", data_holds=str(crash.receipt.holds).lower())[
        h.h2["Receipt of the crash"],
        facts(_receipt_facts(crash, crash.receipt)),
        table(
            ("step", "rows in the log", "accounted for", "as", "view rows compared", "note"),
            [_receipt_row(step) for step in crash.receipt.steps],
            numeric=("rows in the log", "accounted for", "view rows compared"),
            caption="Recounted from the log, up to the commit that the results have.",
        ),
    ]


def _receipt_facts(crash: Crash, receipt: Receipt) -> list[Fact]:
    wrong = sum(step.differ + step.missing + step.extra for step in receipt.steps)
    return [
        Fact("rows lost", f"{receipt.lost:,}", "bad" if receipt.lost else "good"),
        Fact("rows duplicated", f"{receipt.duplicated:,}", "bad" if receipt.duplicated else "good"),
        Fact("results that differ", f"{wrong:,}", "bad" if wrong else "good"),
        Fact("recovered after", f"{crash.seconds or 0:.1f} s"),
    ]


def _receipt_row(step: StepReceipt) -> tuple[Node, ...]:
    wrong = step.differ + step.missing + step.extra
    compared = "–" if step.results is None else f"{step.results:,}"
    note = step.note
    if wrong:
        note = (
            f"{step.differ:,} differ, {step.missing:,} missing, {step.extra:,} too many, such as "
            f"{step.example}. {note}"
        )
    return (
        h.strong[step.step],
        f"{step.in_log:,}",
        f"{step.accounted:,}",
        str(step.law),
        compared,
        h.span(class_="k-bad" if wrong else None)[note or "all equal"],
    )
