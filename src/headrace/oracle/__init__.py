"""The plain-Python meaning of every operator in `headrace.streams`.

It is written to be read and believed, not to be fast: one row after the other, in the order of the
log. Tests compare the engine with it, and simulations run on it. It imports nothing of the engine.
"""

from headrace.oracle.aggregation import Meaning, Pane, meaning
from headrace.oracle.events import Event, events_of

__all__ = ["Event", "Meaning", "Pane", "events_of", "meaning"]
