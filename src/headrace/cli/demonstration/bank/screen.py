"""The result of the demo of a bank."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from headrace.cli.demonstration.bank.stage import Account
from headrace.cli.demonstration.screen import findings_table
from headrace.cli.output import plain, table
from headrace.wording import span


def summary(account: Account) -> RenderableType:
    """The story, and what holds of all accounts."""
    story = table("command", "what happened")
    for scene in account.story:
        story.add_row(plain(scene.wanted), plain(scene.became, "yellow" if scene.refused else ""))
    lines = findings_table(account.findings, "checked in the events of all accounts")
    if account.holds:
        said = f"{account.commands:,} commands, {account.refused:,} of them refused and recorded"
        verdict = Text(f"Every balance follows from its events. ({said}; {span(account.seconds)})")
        verdict.stylize("bold green")
    else:
        verdict = Text("The balances do not follow from the events: please report it.", "bold red")
    return Padding(Group(story, "", lines, "", verdict), (1, 0, 0, 0))
