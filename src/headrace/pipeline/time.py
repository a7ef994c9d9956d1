"""Event time: how long a step waits for late rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.errors import InvalidWindow

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""The columns with the window of a result."""


@dataclass(frozen=True)
class Lateness:
    """The lateness that rows may have. There are no defaults, because only you know.

    The watermark of a row is the highest event time in its topic before the row's commit, less
    `delay`. A window fires when the watermark reaches its end. For `grace` longer, rows still
    amend it, and the correction is emitted as a new revision. After that a row is late.
    """

    delay: timedelta
    grace: timedelta

    def __post_init__(self) -> None:
        if self.delay < timedelta(0) or self.grace < timedelta(0):
            raise InvalidWindow(
                f"Lateness cannot be negative: delay {self.delay}, grace {self.grace}"
            )
