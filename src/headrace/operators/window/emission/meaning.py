"""The emission of panes in plain Python, batch by batch.

The final value of a pane does not depend on the batches. The panes published before its window
ends do, so the batches are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from headrace.clock import micros
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.meaning import Pane, PaneKey, meaning
from headrace.oracle.events import Event
from headrace.pipeline.output import Output


@dataclass(frozen=True)
class Cut:
    """The end of a batch: its last commit of each topic, the frontier there, and the log's time."""

    commits: Mapping[str, int]
    frontier: int | None
    now: int


@dataclass(frozen=True)
class Said:
    """A published row: a pane as it was then, and its kind."""

    key: PaneKey
    pane: Pane
    why: str


def published(output: Output, events: Iterable[Event], cuts: Sequence[Cut]) -> list[Said]:
    """The rows that an output of updates publishes, in order, at the end of each batch."""
    aggregation = output.stream
    assert isinstance(aggregation, Aggregation)
    events, delay = list(events), micros(aggregation.lateness.delay)
    found: list[Said] = []
    last: dict[PaneKey, tuple[Pane, int]] = {}
    before: Mapping[PaneKey, Pane] = {}
    fired: int | None = None
    for cut in cuts:
        read = [event for event in events if event.commit <= cut.commits[event.topic.name]]
        panes = meaning(aggregation, read).panes
        for key in before.keys() - panes.keys():
            if key in last:
                found.append(Said(key, last.pop(key)[0], "retracted"))
        watermark = None if cut.frontier is None else cut.frontier - delay
        for key, pane in panes.items():
            changed = key not in before or before[key].revision != pane.revision
            if watermark is None or pane.end > watermark:
                due = _due(output, pane, last.get(key), cut.now, changed=changed)
                why = "early" if due else None
            elif fired is None or pane.end > fired:
                why = "on time"
            else:
                why = "late" if changed else None
            if why is None:
                continue
            if output.retractions and key in last:
                found.append(Said(key, last[key][0], "retracted"))
            found.append(Said(key, pane, why))
            last[key] = (pane, cut.now)
        before, fired = panes, watermark
    return found


def _due(
    output: Output, pane: Pane, last: tuple[Pane, int] | None, now: int, *, changed: bool
) -> bool:
    """True if an early pane is due."""
    match output.early:
        case "batch":
            return changed
        case "never":
            return False
        case timedelta() as pause:
            if last is None:
                return changed
            return last[0].revision != pane.revision and now - last[1] >= micros(pause)
        case rows:
            known = 0 if last is None else len(last[0].rows)
            return changed and len(pane.rows) - known >= rows
