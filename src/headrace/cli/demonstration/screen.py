"""The demo in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.cli.demonstration.check import Finding
from headrace.cli.demonstration.run import Note, View
from headrace.cli.output import span, table

_STATUS = {"running": ("●", "green"), "killed": ("✗", "bold red"), "done": ("✓", "green")}
_NOTE = {"news": "", "crash": "bold red", "back": "green"}
_NOTES = 7


def draw(view: View, width: int) -> RenderableType:
    """The whole screen."""
    return Group(
        _heading(view),
        "",
        _producer(view, width),
        "",
        _readers(view, width),
        "",
        *(_note(note) for note in view.notes[-_NOTES:]),
    )


def summary(findings: Sequence[Finding], seconds: float) -> RenderableType:
    """What was counted, and whether it is as it should be."""
    lines = table("", "what was counted", ">", "")
    for finding in findings:
        mark = Text("✓", "bold green") if finding.holds else Text("✗", "bold red")
        lines.add_row(mark, finding.law, f"{finding.counted:,}", Text(finding.remark, "dim"))
    if all(finding.holds for finding in findings):
        verdict = Text(f"Nothing was lost. ({span(seconds)})", "bold green")
    else:
        verdict = Text("This is not as it should be: please report it.", "bold red")
    return Padding(Group(lines, "", verdict), (1, 0, 0, 0))


def plain_line(view: View) -> str:
    """The state in one line, where there is no terminal to draw on."""
    groups = ", ".join(
        f"{r.reader.group} {'killed' if r.status == 'killed' else f'{r.lag:,} behind'}"
        for r in view.readers
    )
    return (
        f"{_clock(view.seconds)}  {view.acknowledged:,} of {view.plan.events:,} written; {groups}"
    )


def plain_note(note: Note) -> str:
    return f"{_clock(note.seconds)}  {note.text}"


def _heading(view: View) -> Text:
    return Text.assemble(
        ("headrace demo", "bold"), f"  {_clock(view.seconds)}  ", (f"{view.plan.url}", "dim")
    )


def _producer(view: View, width: int) -> Table:
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(
        Text(f"{'producer':9}", "bold"),
        _status(view.producer),
        " ",
        _bar("blue", view.acknowledged, view.acknowledged, view.plan.events, _bar_width(width)),
        f"{view.acknowledged:,} of {view.plan.events:,} acked",
    )
    return line


def _readers(view: View, width: int) -> Table:
    lines = table("group", "", ">", "█ handled  ▒ waiting", ">offset", ">lag", ">behind")
    total = sum(lag.end for lag in view.readers[0].lags) or 1
    for reader in view.readers:
        for index, lag in enumerate(reader.lags):
            # How long the partition will be in the end, judged by its share so far.
            length = max(1.0, lag.end * view.plan.events / total)
            lines.add_row(
                Text(f"{reader.reader.group:9}", "bold") if not index else "",
                _status(reader.status) if not index else "",
                str(lag.partition),
                _bar(reader.reader.colour, lag.committed or 0, lag.end, length, _bar_width(width)),
                f"{lag.committed or 0:,}",
                Text(f"{lag.records:,}", "yellow" if lag.records else ""),
                Text(span(lag.seconds), "yellow" if lag.seconds >= 1 else ""),
            )
        if not reader.lags:
            lines.add_row(Text(reader.reader.group, "bold"), Text("starting", "dim"))
    return lines


def _bar(colour: str, done: int, there: int, length: float, width: int) -> Text:
    full = min(width, round(width * done / length))
    waiting = min(width, max(full, round(width * there / length))) - full
    bar = Text("█" * full, colour).append("▒" * waiting, "yellow")
    return bar.append("·" * (width - full - waiting), "bright_black")


def _bar_width(width: int) -> int:
    return max(10, min(60, width - 53))


def _status(status: str) -> Text:
    mark, style = _STATUS[status]
    return Text(f"{mark} {status:7}", style)


def _note(note: Note) -> Text:
    return Text.assemble((_clock(note.seconds), "dim"), "  ", (note.text, _NOTE[note.kind]))


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
