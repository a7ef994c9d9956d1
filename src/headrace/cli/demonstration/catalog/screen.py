"""The catalog demo on a terminal, or as lines without one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.cli.demonstration.catalog.account import Account
from headrace.cli.demonstration.catalog.play import Act, Following, Scene
from headrace.cli.demonstration.screen import clock, findings_table
from headrace.cli.output import plain, table
from headrace.wording import span

_STATES = {"following": "green", "building": "yellow", "killed": "bold red", "failing": "bold red"}
_BARS = " ▁▂▃▄▅▆▇█"


def draw(scene: Scene) -> RenderableType:
    """The whole screen."""
    return Group(
        Text.assemble(
            ("headrace demo catalog", "bold"), f"  {clock(scene.seconds)}  ", (scene.url, "dim")
        ),
        "",
        _chain(scene),
        "",
        _stores(scene),
        "",
        *(line for act in scene.acts for line in _act(act)),
    )


def plain_line(scene: Scene) -> str:
    """The state in one line, for use without a terminal."""
    said = f"{clock(scene.seconds)}  {scene.writes:,} written"
    if not scene.steps:
        return f"{said}; starting Spark ..."
    lags = ", ".join(f"{name} {store.lag:,}" for name, store in scene.stores.items())
    line = f"{said}; lag: {lags}"
    if scene.acts:
        act = scene.acts[-1]
        line += f"; {act.text}" + (f": {act.result}" if act.result else " ...")
    return line


def summary(account: Account) -> RenderableType:
    """The end of each store, and the result of the comparison."""
    if account.holds:
        verdict = Text(
            f"Every store has what the database has. ({span(account.seconds)})", "bold green"
        )
    else:
        verdict = Text("The stores differ from the database: please report it.", "bold red")
    lines = findings_table(account.findings, "each store, compared with the database")
    parts: list[RenderableType] = [lines, ""]
    if account.outage is not None:
        parts.append(
            f"without its follower for {span(account.outage.seconds)}, caught up "
            f"{span(account.outage.caught_up)} after its start"
        )
    if account.accident is not None:
        parts.append(
            f"a delete reached every store after {span(account.accident.gone)}, its repair after "
            f"{span(account.accident.back)}"
        )
    return Padding(Group(*parts, "", verdict), (1, 0, 0, 0))


def _chain(scene: Scene) -> Table:
    """The way of a change, up to the changelogs."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_row(Text("shop.db", "bold"), f"{scene.writes:,} rows written", "", "")
    lines.add_row(Text("capture", "bold"), "from the database into topics", _lag(scene.capture_lag))
    for step in scene.steps:
        lines.add_row(Text(f"view {step.step}", "bold"), "by Spark, in SQLite", _lag(step.lag))
    if not scene.steps:
        lines.add_row(Text("views", "bold"), Text("starting Spark ...", "dim"), "")
    return lines


def _stores(scene: Scene) -> Table:
    lines = table("store", "follower", ">lag", ">behind", ">applied", "lag so far")
    highest = max((store.most for store in scene.stores.values()), default=0)
    for name, store in scene.stores.items():
        lines.add_row(
            plain(name, "bold"),
            Text(f"● {store.state}", _STATES.get(store.state, "dim")),
            _lag(store.lag, unit=""),
            span(store.behind) if store.lag else "-",
            f"{store.applied:,}",
            _drawn(store, highest),
        )
    return lines


def _lag(lag: int | None, unit: str = "lag ") -> Text:
    if lag is None:
        return Text("-", "dim")
    return Text(f"{unit}{lag:,}", "yellow" if lag else "green")


def _drawn(store: Following, highest: int) -> Text:
    """The lag of the last looks as bars, all stores on one scale."""
    return Text("".join(_bar(look, highest) for look in store.looks), "yellow")


def _bar(look: int, highest: int) -> str:
    """A bar: the least that there is for any lag, so that it can be seen."""
    if not look:
        return _BARS[1]
    return _BARS[1 + -(-look * (len(_BARS) - 2) // max(1, highest))]


def _act(act: Act) -> Sequence[Text]:
    mark = Text("✓ ", "green") if act.over else Text("● ", "yellow")
    lines = [Text.assemble(mark, act.text)]
    if act.result:
        lines.append(Text(f"    {act.result}", "dim"))
    return lines
