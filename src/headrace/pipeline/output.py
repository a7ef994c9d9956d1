"""Outputs: the topics that an application writes to, and which panes of a window are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from headrace.errors import InvalidPipeline
from headrace.pipeline.stream import Stream
from headrace.pipeline.where import Where

Early = Literal["batch", "never"] | int | timedelta
"""The policy for publishing open windows: see `App.publish`."""

PANE = "pane"
"""The column of a published window with its kind of pane: early, on time, late, final."""


@dataclass(frozen=True)
class Output:
    """A topic that the application writes to, and how often its windows are written."""

    topic: str
    stream: Stream
    where: Where
    early: Early = "batch"
    retractions: bool = False

    @property
    def is_selective(self) -> bool:
        """True if what to write depends on what was written before."""
        return self.early != "batch" or self.retractions


def check_output(output: Output) -> None:
    """Check that an output can be written as declared."""
    early, see = output.early, f"See {output.where}"
    if isinstance(early, timedelta):
        good = early > timedelta(0)
    elif isinstance(early, int) and not isinstance(early, bool):
        good = early > 0
    else:
        good = early in ("batch", "never")
    if not good:
        raise InvalidPipeline(
            f"early cannot be {early!r}",
            hint=f"Use 'batch', 'never', a number of rows, or a timedelta. {see}",
        )
    if not isinstance(output.retractions, bool):
        raise InvalidPipeline(
            f"retractions cannot be {output.retractions!r}", hint=f"Use True or False. {see}"
        )
    output.stream.check_output(output)


def check_panes(output: Output, columns: Sequence[str], emit: str) -> None:
    """Check that an output can publish windows with these columns."""
    see = f"See {output.where}"
    for name in (PANE, "revision"):
        if name in columns:
            raise InvalidPipeline(
                f"The stream published to {output.topic!r} has a column {name!r} of its own",
                hint=f"headrace adds the columns pane and revision; rename yours. {see}",
            )
    if output.is_selective and emit == "final":
        raise InvalidPipeline(
            f"Windows published to {output.topic!r} are final: they have no early panes and no "
            "retractions",
            hint=f"Leave out early and retractions, or use emit='updates'. {see}",
        )
