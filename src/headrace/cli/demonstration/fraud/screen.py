"""The fraud demo on a terminal, or as lines without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.cli.demonstration.fraud.account import Account, Passed, Score
from headrace.cli.demonstration.fraud.play import ALERTS, Results
from headrace.cli.demonstration.play import Scene
from headrace.cli.demonstration.screen import clock, findings_table, heading, sides
from headrace.cli.output import plain, table
from headrace.wording import span

_RULES = {"too many": "yellow", "too much": "red", "too fast": "magenta", "model": "cyan"}


def draw(scene: Scene[Results]) -> RenderableType:
    """The whole screen."""
    pace = "in use" if scene.writing else "waiting" if scene.results is None else "all written"
    progress = sides(scene, "cards", pace, "transactions", "processing")
    parts: list[RenderableType] = [heading(scene, "headrace demo fraud"), "", progress, ""]
    if scene.results is None:
        parts.append(Text("starting Spark: transactions follow when it runs ...", "dim"))
    else:
        parts += [_alerts(scene.results), "", Text(f"{scene.results.step.law}", "green")]
    return Group(*parts)


def plain_line(scene: Scene[Results]) -> str:
    """The state in one line, for use without a terminal."""
    said = f"{clock(scene.seconds)}  {scene.written:,} written"
    if scene.results is None:
        return f"{said}; starting Spark ..."
    step = scene.results.step
    line = f"{said}; lag {step.lag:,}; {step.law}; {scene.results.alerts:,} alerts"
    if scene.results.last:
        line += f"; latest: {_told(scene.results.last[-1])}"
    return line


def summary(account: Account) -> RenderableType:
    """The scores of the rules, the recount, and the cost of an hourly batch."""
    parts: list[RenderableType] = [_scores(account), "", findings_table(account.findings), ""]
    parts += [_picture(account), ""]
    if account.latency:
        took = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in account.latency.items())
        parts.append(f"latency from transaction to alert, both in the log: {took}")
    if account.holds:
        text = f"Every transaction is accounted for. ({span(account.seconds)})"
        parts.append(Text(text, "bold green"))
    else:
        parts.append(Text("The counts do not agree: please report it.", "bold red"))
    return Padding(Group(*parts), (1, 0, 0, 0))


def _alerts(results: Results) -> Table:
    lines = table(ALERTS, "card", "transaction", "at", ">value", ">evidence")
    lines.title = f"{results.alerts:,} alerts, latest first:"
    for row in reversed(results.last):
        lines.add_row(
            Text(row["rule"], _RULES.get(row["rule"], "")),
            plain(row["card"]),
            plain(row["transaction"]),
            f"{row['at']:%H:%M:%S}",
            "∞" if row["value"] is None else f"{row['value']:,.2f}",
            f"{len(row['evidence'])}",
        )
    return lines


def _scores(account: Account) -> Table:
    lines = table("rule", ">alerts", ">precision", ">recall", "", title="scores of the rules")
    for score in account.rules:
        _score(lines, score, "against the recount from the log's segments")
    _score(lines, account.fraud, "against the transactions that are fraud")
    return lines


def _score(lines: Table, score: Score, of: str) -> None:
    shares = (f"{share:.3f}" for share in (score.precision, score.recall))
    lines.add_row(score.rule, f"{score.alerts:,}", *shares, Text(of, "dim"))


def _picture(account: Account) -> Table:
    """The fraud that gets through."""
    seen = account.picture
    title = (
        f"{seen.caught:,} of {seen.incidents:,} stolen cards were found. Fraud that got through:"
    )
    lines = table("", ">transactions", ">money", title=title)
    rows: Mapping[str, Passed] = {
        "without detection": seen.all,
        "with an hourly batch": seen.hourly,
        "with these alerts": seen.alerted,
    }
    for name, passed in rows.items():
        lines.add_row(name, f"{passed.transactions:,}", f"${passed.money:,.0f}")
    return lines


def _told(row: Mapping[str, Any]) -> str:
    return f"{row['rule']}, {row['card']} at {row['at']:%H:%M:%S}"
