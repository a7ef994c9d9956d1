"""The demo on a terminal, or as lines without one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.cli.demonstration.check import DEAD, LATE, VIEW, Account, Finding
from headrace.cli.demonstration.play import R, Results, Scene
from headrace.cli.output import plain, table
from headrace.clock import to_datetime
from headrace.wording import span

_STATES = {"open": "yellow", "fired": "cyan", "final": "green"}


def draw(scene: Scene[Results]) -> RenderableType:
    """The whole screen."""
    pace = "writing" if scene.writing else "all written"
    progress = sides(scene, "generator", pace, "page views", "counting")
    parts: list[RenderableType] = [heading(scene, "headrace demo"), "", progress, ""]
    if scene.results is None:
        parts.append(Text("starting Spark: the first counts appear in a few seconds ...", "dim"))
    elif not scene.results.minutes:
        parts.append(Text("the first page views are being counted ...", "dim"))
    else:
        parts += [_minutes(scene.results), "", *_aside(scene.results)]
    return Group(*parts)


def plain_line(scene: Scene[Results]) -> str:
    """The state in one line, for use without a terminal."""
    said = f"{clock(scene.seconds)}  {scene.written:,} written"
    if scene.results is None:
        return f"{said}; starting Spark ..."
    step = scene.results.step
    line = f"{said}; lag {step.lag:,}, watermark {time_of(scene.results.watermark)}; {step.law}"
    if scene.results.top:
        best = scene.results.top[0]
        line += f"; top page {best['url']} with {best['total']:,}"
    return line


def summary(account: Account) -> RenderableType:
    """The counts, and the result of the recount."""
    pages = table("page", ">views", title="most viewed")
    for url, hits in account.top:
        pages.add_row(plain(url), f"{hits:,}")
    lines = findings_table(account.findings)
    if account.holds:
        first = account.first_result
        early = "" if first is None else f", first counts after {span(first)}"
        took = f"({span(account.seconds)}{early})"
        verdict = Text(f"Every page view is accounted for. {took}", "bold green")
    else:
        verdict = Text("The counts do not agree: please report it.", "bold red")
    return Padding(Group(pages, "", lines, "", verdict), (1, 0, 0, 0))


def findings_table(
    findings: Sequence[Finding], title: str = "recount from the log's segments"
) -> Table:
    """The claims, and whether they hold."""
    lines = table("", title, ">", "")
    for finding in findings:
        mark = Text("✓", "bold green") if finding.holds else Text("✗", "bold red")
        lines.add_row(mark, finding.law, f"{finding.counted:,}", Text(finding.remark, "dim"))
    return lines


def heading(scene: Scene[R], command: str) -> Text:
    """The command, the time since its start, and the log."""
    return Text.assemble((command, "bold"), f"  {clock(scene.seconds)}  ", (scene.url, "dim"))


def sides(scene: Scene[R], writer: str, pace: str, events: str, works: str) -> Table:
    """The progress of the generator and of the pipeline, in the words of a demo."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_row(
        Text(writer, "bold"),
        Text(f"● {pace}", "green" if scene.writing else "dim"),
        f"{scene.written:,} {events}",
        f"event time {time_of(scene.event_time)}",
    )
    results = scene.results
    if results is not None:
        lag = results.step.lag
        lines.add_row(
            Text("pipeline", "bold"),
            Text(f"● {works}" if lag else "● caught up", "green"),
            f"{results.rate:,.0f} rows/s",
            f"watermark  {time_of(results.watermark)}",
            Text(f"lag {lag:,} rows", "yellow" if lag else ""),
        )
    return lines


def _minutes(results: Results) -> Table:
    """The latest minutes, and their most viewed pages."""
    starts = [str(minute["window_start"]) for minute in results.minutes]
    lines = table(VIEW, *(f">{start[11:16]}" for start in starts), ">total")
    states = [str(minute["_state"]) for minute in results.minutes]
    lines.add_row("", *(Text(state, _STATES.get(state, "")) for state in states), "")
    for row in results.top:
        hits = json.loads(row["hits"])
        counts = (f"{hits[start]:,}" if start in hits else "-" for start in starts)
        lines.add_row(plain(row["url"], "bold"), *counts, f"{row['total']:,}")
    totals = [minute["hits"] for minute in results.minutes]
    lines.add_row(
        Text("all pages", "dim"), *(f"{hits:,}" for hits in totals), f"{sum(totals):,}", style="dim"
    )
    return lines


def _aside(results: Results) -> list[RenderableType]:
    """Late and broken page views, and the account of all rows."""
    law = results.step.law
    return [
        Text.assemble((f"{law.late:,} too late", "yellow"), f"  in {LATE}"),
        *(Text(f"  {_late(row)}", "dim") for row in results.late),
        Text.assemble((f"{law.dead:,} broken", "red"), f"  in {DEAD}"),
        *(Text(f"  {row['reason']}: {row['row']}", "dim") for row in results.dead[-2:]),
        "",
        Text(f"{'✓' if law.holds else '✗'} {law}", "green" if law.holds else "bold red"),
    ]


def _late(row: Mapping[str, Any]) -> str:
    return (
        f"{row['at']:%H:%M:%S}  {row['url']}  {row['user']}: its minute had closed "
        f"{span(float(row['late_by']))} earlier"
    )


def time_of(moment: int | None) -> str:
    """A time of the day."""
    return "-" if moment is None else f"{to_datetime(moment):%H:%M:%S}"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
