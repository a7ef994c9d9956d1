"""Which panes of a window are published, and whether what was said before is taken back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from headrace.errors import InvalidPipeline
from headrace.pipeline.stream import Aggregation, Stream, Top
from headrace.pipeline.time import Sliding
from headrace.pipeline.where import Where

Early = Literal["batch", "never"] | int | timedelta
"""How often a window that is still open is told of: see `App.publish`."""


@dataclass(frozen=True)
class Output:
    """A topic that the application writes to, and what of a window is written before it ends."""

    topic: str
    stream: Stream
    where: Where
    early: Early = "batch"
    retractions: bool = False

    @property
    def remembers(self) -> bool:
        """Whether what to write depends on what was written before."""
        return self.early != "batch" or self.retractions


def check_panes(output: Output) -> None:
    """Return if an output can be told of panes as it wants to be."""
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
    if isinstance(output.stream, Aggregation | Top):
        for name in ("pane", "revision"):
            if name in output.stream.columns:
                raise InvalidPipeline(
                    f"What is published to {output.topic!r} has a column {name!r} of its own",
                    hint=f"Every published row says its pane and revision; rename yours. {see}",
                )
    if output.remembers:
        _check_stream(output, see)


def _check_stream(output: Output, see: str) -> None:
    stream = output.stream
    if not isinstance(stream, Aggregation | Top):
        raise InvalidPipeline(
            f"What is published to {output.topic!r} has no panes: its rows are written once",
            hint=f"early and retractions are for aggregations and what is made of them. {see}",
        )
    if stream.emit == "final":
        raise InvalidPipeline(
            f"What is published to {output.topic!r} is final: nothing comes early, and nothing is "
            "taken back",
            hint=f"Leave out early and retractions, or let emit be 'updates'. {see}",
        )
    if isinstance(output.early, int) and isinstance(stream, Top):
        raise InvalidPipeline(
            f"A rank cannot wait for {output.early} rows: others may take it meanwhile",
            hint=f"Use 'batch', 'never' or a timedelta. {see}",
        )
    if isinstance(output.early, int) and _slides(stream):
        raise InvalidPipeline(
            f"A sliding window cannot wait for {output.early} rows: there is one for every event",
            hint=f"Use 'batch', 'never' or a timedelta. {see}",
        )


def _slides(stream: Stream) -> bool:
    return isinstance(stream, Aggregation) and isinstance(stream.window, Sliding)
