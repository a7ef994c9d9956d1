"""The plain-Python meaning of every operator in `headrace.streams`.

It is written to be read and believed, not to be fast: one row after the other, in the order of the
log. Tests compare the engine with it, and simulations run on it. It imports nothing of the engine.
"""

from headrace.oracle.aggregation import Meaning, Pane, meaning
from headrace.oracle.events import Event, events_of
from headrace.oracle.panes import Cut, Said, published
from headrace.oracle.top import ranking

__all__ = [
    "Cut",
    "Event",
    "Meaning",
    "Pane",
    "Said",
    "events_of",
    "meaning",
    "published",
    "ranking",
]
