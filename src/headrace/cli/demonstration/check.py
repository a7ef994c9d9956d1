"""The check at the end: the pipeline's results against the recount."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace.cli.demonstration.recount import Pane, Recount, Rule, late_rows, recount, stored_rows
from headrace.clock import micros, to_datetime, to_micros
from headrace.operators.window.declare import Aggregation
from headrace.pipeline.app import App
from headrace.plan.law import Law
from headrace.store import Views

TOPIC, VIEW = "pageviews", "hits_per_minute"
LATE, DEAD = "pageviews.late", "pageviews.dead"


@dataclass(frozen=True)
class Finding:
    """A claim, whether it holds, and the numbers."""

    law: str
    holds: bool
    counted: int
    remark: str = ""


@dataclass(frozen=True)
class Account:
    """The result of the demo."""

    log: str
    written: int
    seconds: float
    first_result: float | None
    findings: Sequence[Finding]
    top: Sequence[tuple[str, int]]

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        first = self.first_result
        return {
            "log": self.log,
            "events": self.written,
            "seconds": round(self.seconds, 3),
            "first_result": None if first is None else round(first, 3),
            "holds": self.holds,
            "findings": [asdict(finding) for finding in self.findings],
            "top": [{"url": url, "hits": hits} for url, hits in self.top],
        }


def check(folder: Path, app: App, views: Views, written: int) -> list[Finding]:
    """Verify everything that the demo promises."""
    law = views.state(VIEW).law
    again = recount(folder, TOPIC, rule_of(app))
    return [
        all_read(law, again, written),
        conserved(law),
        same_counts(panes_of(views), again),
        same_late(law, late_rows(folder, LATE), again),
        same_dead(law, stored_rows(folder, DEAD).num_rows, again),
    ]


def rule_of(app: App) -> Rule:
    """The declaration of the pipeline in numbers."""
    stream, skew = app.views[VIEW].stream, app.topics[TOPIC].settings.skew
    assert isinstance(stream, Aggregation)
    assert skew is not None
    return Rule(
        micros(stream.window.length),
        micros(stream.lateness.delay),
        micros(stream.lateness.grace),
        micros(skew),
    )


def panes_of(views: Views) -> dict[Pane, int]:
    """The counts in the view."""
    return {
        (row["url"], to_micros(datetime.fromisoformat(row["window_start"]))): row["hits"]
        for row in views.rows(VIEW)
    }


def all_read(law: Law, again: Recount, written: int) -> Finding:
    """The pipeline has read what is in the log, and the log has what was written."""
    return Finding(
        "page views read",
        law.rows == again.rows and again.rows >= written,
        law.rows,
        f"{again.rows:,} in the segments",
    )


def conserved(law: Law, what: str = "page views") -> Finding:
    """Every row is accounted for."""
    return Finding(f"{what} accounted for", law.holds, law.rows, str(law))


def same_counts(panes: Mapping[Pane, int], again: Recount) -> Finding:
    """The view has the counts of the recount, no more and no fewer."""
    wrong = [
        pane
        for pane in sorted(panes.keys() | again.hits.keys())
        if panes.get(pane) != again.hits.get(pane)
    ]
    remark = f"{len(panes):,} counts, {len(wrong):,} differ from the recount"
    if wrong:
        url, start = wrong[0]
        remark += (
            f"; first {url} at {to_datetime(start):%H:%M}: {panes.get(wrong[0], 0):,}, not "
            f"{again.hits.get(wrong[0], 0):,}"
        )
    return Finding("page views counted in their minute", not wrong, sum(panes.values()), remark)


def same_late(law: Law, published: Counter[Any], again: Recount) -> Finding:
    """The late stream has exactly the rows that are late in the recount."""
    missing, extra = again.late - published, published - again.late
    return Finding(
        f"late page views in {LATE}",
        not missing and not extra and law.late == again.late.total(),
        published.total(),
        f"{again.late.total():,} in the recount, {missing.total():,} missing, "
        f"{extra.total():,} extra",
    )


def same_dead(law: Law, published: int, again: Recount) -> Finding:
    """The dead letters are exactly the rows without a valid event time."""
    return Finding(
        f"broken page views in {DEAD}",
        law.dead == published == again.dead,
        published,
        f"{again.dead:,} in the recount",
    )
