"""Window shapes: tumbling, hopping, cumulative, sliding, session.

Windows on a grid and sessions are half-open: `[start, end)`. A row on a boundary belongs to the
later one. A sliding window reaches back from an event, both ends included.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple

from headrace.clock import micros
from headrace.errors import InvalidWindow
from headrace.log.settings import format_span
from headrace.pipeline.arguments import declaration
from headrace.pipeline.time import WINDOW_END, WINDOW_START

_NONE = timedelta(0)
FOREVER = timedelta(days=365_000)
"""An expiry for totals that are kept for ever."""


class _Kind(ABC):
    """Base of all window shapes."""

    noun: ClassVar[str] = "a window"
    example: ClassVar[str] = "hr.tumbling({span})"

    @property
    @abstractmethod
    def length(self) -> timedelta:
        """The time from start to end; for a session, that of a single event."""

    key: ClassVar[tuple[str, ...]] = (WINDOW_START,)
    """The columns that distinguish the windows of a key."""

    def start_of(self, end: Any) -> Any:
        """The start of a window, from its end in microseconds: an int, NumPy's, or a Column."""
        return end - micros(self.length)

    @property
    def settles(self) -> timedelta:
        """The time after end and grace in which a window can still change."""
        return timedelta(0)

    @property
    def per_row(self) -> int | None:
        """Windows per row, if constant."""
        return 1

    end_called: ClassVar[str] = "the end of its window"
    is_shared: ClassVar[bool] = True
    """False if each event has its own window."""

    @property
    @abstractmethod
    def definition(self) -> list[Any]:
        """The window as plain data."""

    @abstractmethod
    def ends(self, moment: int) -> list[int]:
        """The ends of all windows that hold a moment, in order, in microseconds."""


@dataclass(frozen=True)
class Window(_Kind):
    """Windows of one `size` that start every `every`, on a grid through 1970 + `offset`.

    They overlap if `every` is less than `size`; a row is then in several.
    """

    size: timedelta
    every: timedelta
    offset: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if self.size <= timedelta(0) or self.every <= timedelta(0):
            raise InvalidWindow(
                f"A window must be longer than 0s: size {format_span(self.size)}, "
                f"every {format_span(self.every)}"
            )
        if self.every > self.size:
            raise InvalidWindow(
                f"Windows of {format_span(self.size)} every {format_span(self.every)} leave gaps "
                "between them, and rows in a gap would be lost",
                hint="`every` can be at most the size",
            )
        if not timedelta(0) <= self.offset < self.every:
            raise InvalidWindow(
                f"The offset {self.offset} is not within the step of {self.every}",
                hint="Choose an offset from 0 up to, not including, the step",
            )

    @property
    def length(self) -> timedelta:
        return self.size

    @property
    def per_row(self) -> int | None:
        return None if self.size % self.every else self.size // self.every

    @property
    def definition(self) -> list[Any]:
        return [micros(self.size), micros(self.every), micros(self.offset)]

    def ends(self, moment: int) -> list[int]:
        """The ends of all windows that hold a moment, in order, in microseconds."""
        size, every, offset = micros(self.size), micros(self.every), micros(self.offset)
        last = (moment - offset) // every * every + offset
        count = -(-(size - (moment - last)) // every)
        return [last - every * back + size for back in reversed(range(count))]

    def __str__(self) -> str:
        offset = f", from {format_span(self.offset)} on" if self.offset else ""
        if self.size == self.every:
            return f"tumbling, {format_span(self.size)}{offset}"
        return f"hopping, {format_span(self.size)}, one every {format_span(self.every)}{offset}"


@dataclass(frozen=True)
class Cumulative(_Kind):
    """Windows with a common start every `size`, each one `step` longer than the last.

    A row is in the first window that ends after it, and in all longer ones with the same start.
    """

    size: timedelta
    step: timedelta
    offset: timedelta = timedelta(0)
    key = (WINDOW_START, WINDOW_END)

    def __post_init__(self) -> None:
        if self.size <= timedelta(0) or self.step <= timedelta(0) or self.size % self.step:
            raise InvalidWindow(
                f"A cumulative window of {self.size} cannot have a step of {self.step}",
                hint="The size must be a multiple of the step, and both must be positive",
            )
        if not timedelta(0) <= self.offset < self.size:
            raise InvalidWindow(
                f"The offset {self.offset} is not within the size of {self.size}",
                hint="Choose an offset from 0 up to, not including, the size",
            )

    @property
    def length(self) -> timedelta:
        return self.size

    @property
    def per_row(self) -> int | None:
        return 1 if self.size == self.step else None

    @property
    def definition(self) -> list[Any]:
        return ["cumulative", micros(self.size), micros(self.step), micros(self.offset)]

    def start_of(self, end: Any) -> Any:
        size = micros(self.size)
        # Twice, because Spark's remainder of a negative number is negative.
        return end - 1 - ((end - 1 - micros(self.offset)) % size + size) % size

    def ends(self, moment: int) -> list[int]:
        """The ends of all windows that hold a moment, in order, in microseconds."""
        size, step, offset = map(micros, (self.size, self.step, self.offset))
        start = (moment - offset) // size * size + offset
        first = start + ((moment - start) // step + 1) * step
        return list(range(first, start + size + 1, step))

    def __str__(self) -> str:
        offset = f", from {format_span(self.offset)} on" if self.offset else ""
        return f"cumulative, up to {format_span(self.size)} by {format_span(self.step)}{offset}"


@dataclass(frozen=True)
class Sliding(_Kind):
    """For each event, the window of that `size` that ends with it. There is no grid.

    Events of one key at the same moment share a window.
    """

    size: timedelta
    end_called = "its row"
    is_shared = False

    def __post_init__(self) -> None:
        if self.size <= timedelta(0):
            raise InvalidWindow(f"A window must be longer than 0s: {format_span(self.size)}")

    @property
    def length(self) -> timedelta:
        return self.size

    @property
    def definition(self) -> list[Any]:
        return ["sliding", micros(self.size)]

    def ends(self, moment: int) -> list[int]:
        """The end of the event's own window."""
        return [moment]

    def __str__(self) -> str:
        return f"the {format_span(self.size)} up to each row"


@dataclass(frozen=True)
class Session(_Kind):
    """Events of a key that are less than `gap` apart.

    A single event is a session from its event time to `gap` later; overlapping sessions merge.
    """

    gap: timedelta
    end_called = "the end of its session"

    def __post_init__(self) -> None:
        if self.gap <= timedelta(0):
            raise InvalidWindow(f"The gap of a session must be positive: {format_span(self.gap)}")

    @property
    def length(self) -> timedelta:
        return self.gap

    @property
    def definition(self) -> list[Any]:
        return ["session", micros(self.gap)]

    @property
    def settles(self) -> timedelta:
        """The gap, a second time.

        An event that is just on time may have happened up to `gap` before the end, and then extends
        an older session.
        """
        return self.gap

    def ends(self, moment: int) -> list[int]:
        """The end of the session of a single event."""
        return [moment + micros(self.gap)]

    def __str__(self) -> str:
        if self.gap >= FOREVER:
            return "none: totals are kept for ever"
        gap = format_span(self.gap)
        return f"session: rows of a key less than {gap} apart, and {gap} after the last"


AnyWindow = Window | Cumulative | Sliding | Session


@declaration
def tumbling(size: timedelta, *, offset: timedelta = timedelta(0)) -> Window:
    """Adjacent windows: every row is in exactly one."""
    return Window(size, size, offset)


@declaration
def hopping(size: timedelta, every: timedelta, *, offset: timedelta = timedelta(0)) -> Window:
    """Overlapping windows: the last ten minutes, every minute."""
    return Window(size, every, offset)


@declaration
def cumulative(size: timedelta, *, step: timedelta, offset: timedelta = timedelta(0)) -> Cumulative:
    """Growing windows: today so far, every hour. The next day starts again."""
    return Cumulative(size, step, offset)


@declaration
def sliding(size: timedelta) -> Sliding:
    """The time before each event: more than three failures within ten minutes."""
    return Sliding(size)


@declaration
def session(gap: timedelta) -> Session:
    """A window that lasts while events are less than `gap` apart: one visit to a site."""
    return Session(gap)


@declaration
def running(expiry: timedelta) -> Session:
    """Running totals without a window, until a key has had no event for `expiry`.

    The state of a key is kept for that long. `FOREVER` keeps it for good.
    """
    return Session(expiry)


def shown(definition: list[Any]) -> str:
    """A window in words, from its definition."""
    kind, *parts = definition if isinstance(definition[0], str) else ("", *definition)
    spans = [format_span(timedelta(microseconds=part)) for part in parts]
    if kind == "cumulative":
        return f"cumulative {spans[0]} by {spans[1]}" + (f" from {spans[2]}" if parts[2] else "")
    if kind:
        return f"{kind} {spans[0]}"
    size, every, offset = spans
    kind = f"tumbling {size}" if size == every else f"hopping {size} every {every}"
    return kind + (f" from {offset}" if parts[2] else "")


class SqlForm(NamedTuple):
    """A window function in SQL: its syntax, and the constructor for its intervals."""

    text: str
    make: Callable[..., AnyWindow]
    least: int
    most: int


SQL_FORMS = {
    "TUMBLE": SqlForm(
        "TUMBLE(event_time, INTERVAL size [, INTERVAL offset])",
        lambda size, offset=_NONE: tumbling(size, offset=offset), 1, 2,
    ),
    "HOP": SqlForm(
        "HOP(event_time, INTERVAL size, INTERVAL every [, INTERVAL offset])", Window, 2, 3
    ),
    "CUMULATE": SqlForm(
        "CUMULATE(event_time, INTERVAL size, INTERVAL step [, INTERVAL offset])", Cumulative, 2, 3
    ),
    "SLIDE": SqlForm("SLIDE(event_time, INTERVAL size)", sliding, 1, 1),
    "SESSION": SqlForm("SESSION(event_time, INTERVAL gap)", session, 1, 1),
    "RUNNING": SqlForm(
        "RUNNING(event_time, INTERVAL expiry) or RUNNING(event_time, FOREVER)", running, 1, 1
    ),
}  # fmt: skip
