"""Why a row of a view is what it is: its history, its input events, and the view as it was.

History and the past come from the view's changelog. The input events come from the log, through the
oracle, if the application's declaration is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import to_datetime, to_micros
from headrace.errors import HeadraceError
from headrace.log import Batch, Capability, Commit, Log, TopicCommit
from headrace.log.sample import Sample
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.meaning import Counted, Pane, meaning, row_of
from headrace.oracle.excerpt import excerpt_of
from headrace.oracle.expressions import BeyondOracle
from headrace.pipeline.app import App
from headrace.pipeline.stream import sources
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan.steps import steps_of, with_schemas
from headrace.store.changelog import key_texts, topic_of
from headrace.store.sqlite import typed
from headrace.studio.live.rows import Described

CHANGES = 100_000
"""Changes that the past of a view is made of, at most."""
SCANNED = 200_000
"""Rows that are looked at for the events of one row, at most."""
_PAGE = 10_000


@dataclass(frozen=True)
class Change:
    """One change of a row: its commit, its time in microseconds, and the columns after it."""

    commit: int
    appended: int
    op: str
    row: dict[str, Any] | None


@dataclass(frozen=True)
class History:
    """The changes of a row, the newest first, or the reason why there are none."""

    changes: tuple[Change, ...]
    reason: str = ""


@dataclass(frozen=True)
class Past:
    """A view as it was at a commit, or the reason why that is not known."""

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    reason: str = ""
    cut: bool = False
    """True if the changelog had more changes than were read."""


@dataclass(frozen=True)
class Why:
    """The events that a row counts, or the reason why they are not known."""

    topics: tuple[str, ...] = ()
    events: tuple[Counted, ...] = ()
    late: int = 0
    result: dict[str, Any] | None = None
    reason: str = ""


def history_of(log: Log, view: Described, row: Sequence[Any], limit: int = 50) -> History:
    """The changes of a row that its changelog still has, the newest first."""
    if reason := no_changelog(log, view):
        return History((), reason)
    kinds = tuple(view.types.get(name) for name in view.columns)
    table = typed.table_of(view.columns, [tuple(row)], kinds)
    key = key_texts(table.select(list(view.key)))[0]
    found: list[Change] = []
    for batch in _batches(log, topic_of(view.app, view.name), log.head())[0]:
        same = batch.data.filter(pc.equal(batch.data.column("key"), key))
        for change in same.to_pylist():
            after = change["after"]
            made = None if after is None else {n: shown(value) for n, value in after.items()}
            found.append(Change(batch.commit or 0, batch.timestamp, change["op"], made))
    return History(tuple(found[::-1][:limit]))


def past_of(log: Log, view: Described, commit: int, limit: int) -> Past:
    """The newest rows of a view as they were at a commit, from its changelog."""
    columns = tuple(name for name in view.columns if not name.startswith("_"))
    if reason := no_changelog(log, view):
        return Past(columns, [], reason)
    last: dict[str, tuple[Batch, int]] = {}
    batches, cut = _batches(log, topic_of(view.app, view.name), commit)
    for batch in batches:
        for place, key in enumerate(batch.data.column("key").to_pylist()):
            last[key] = batch, place
    alive = [
        batch.data.column("after")[place]
        for batch, place in last.values()
        if batch.data.column("after")[place].is_valid
    ]
    rows = [{n: shown(value) for n, value in found.as_py().items()} for found in alive]
    by_key = [name for name in view.key if name != WINDOW_START]
    rows.sort(key=lambda row: tuple(str(row.get(name)) for name in by_key))
    if view.windowed:
        rows.sort(key=lambda row: str(row.get(WINDOW_START)), reverse=True)
    return Past(columns, rows[:limit], cut=cut)


def no_changelog(log: Log, view: Described) -> str:
    """The reason why a view has no past, if it has none."""
    if Capability.NUMBERED_APPENDS not in log.capabilities:
        return "The past is shown of embedded logs only."
    name = topic_of(view.app, view.name)
    if not log.topic_ids([name]):
        return f"This view has no changelog: there is no topic {name}."
    return ""


def events_of(
    log: Log, app: App | None, view: Described, row: dict[str, Any], reached: Mapping[str, int]
) -> Why:
    """The input events that a row of a windowed aggregation counts, by the oracle.

    `reached` has the last commit of each topic that the view knows.
    """
    if app is None or view.name not in app.views:
        return Why(
            reason="The declaration of this view is not known. Start the studio with its "
            "application: headrace studio MODULE:APP"
        )
    if Capability.NUMBERED_APPENDS not in log.capabilities:
        return Why(reason="This is known of embedded logs only.")
    try:
        return _explained(log, app, view, row, reached)
    except (HeadraceError, BeyondOracle, AssertionError, KeyError, TypeError) as error:
        text = error.message if isinstance(error, HeadraceError) else str(error)
        return Why(reason=f"This cannot be told: {text or 'the step is beyond the oracle'}.")


def _explained(
    log: Log, app: App, view: Described, row: dict[str, Any], reached: Mapping[str, int]
) -> Why:
    step = next(s for s in steps_of(app) if s.view is not None and s.view.name == view.name)
    aggregation = with_schemas(log, step).computed
    if not isinstance(aggregation, Aggregation) or WINDOW_START not in row:
        return Why(reason="Only rows of windowed aggregations can be traced to their events.")
    start, end = (_micros(str(row[name])) for name in (WINDOW_START, WINDOW_END))
    topics = tuple(dict.fromkeys(source.topic.name for source in sources(aggregation)))
    samples = [_sample(log, name, start, end, reached.get(name, 0)) for name in topics]
    if any(sample is None for sample in samples):
        reason = f"The window has more than {SCANNED:,} rows to look at."
        return Why(topics, reason=reason)
    excerpt = excerpt_of(sample for sample in samples if sample is not None)
    inside = [
        e for e in excerpt.events if e.event_time is not None and start <= e.event_time <= end
    ]
    found = meaning(aggregation, inside)
    wanted = [str(row[name]) for name in aggregation.by] + [str(row[WINDOW_START])]
    late = sum(
        1
        for _, made, late_end, _ in found.late
        if late_end == end and [str(shown(made[name])) for name in aggregation.by] == wanted[:-1]
    )
    for key, pane in found.panes.items():
        made = {name: shown(value) for name, value in row_of(aggregation, key, pane).items()}
        if [str(made[n]) for n in (*aggregation.by, WINDOW_START)] == wanted and pane.end == end:
            return Why(topics, _ordered(pane), late, made)
    kept = "The log has none of its events any more, or the declaration is another by now."
    return Why(topics, late=late, reason=kept)


def _ordered(pane: Pane) -> tuple[Counted, ...]:
    return tuple(sorted(pane.rows, key=lambda row: row.order))


def _sample(log: Log, topic: str, start: int, end: int, upto: int) -> Sample | None:
    """The commits up to one that may have rows of a window; None if they are too many."""
    chosen: list[TopicCommit] = []
    after, rows = 0, 0
    while page := log.commits(topic, after, _PAGE):
        for commit in page:
            # The frontier never goes back, so what is before the window cannot have its rows.
            inside = commit.after is not None and commit.after >= start
            early = commit.oldest is not None and commit.oldest <= end
            if commit.number <= upto and commit.rows and inside and early:
                chosen.append(commit)
                rows += commit.rows
        after = page[-1].number
        if rows > SCANNED:
            return None
        if after >= upto:
            break
    state = log.topic(topic)
    batches = [batch for first, last in _runs(chosen) for batch in _read(log, topic, first, last)]
    return Sample(state.topic, state.records, tuple(chosen), tuple(batches))


def _runs(commits: Sequence[TopicCommit]) -> Iterator[tuple[int, int]]:
    """Ranges of commit numbers that follow each other."""
    first = last = None
    for commit in commits:
        if first is None or last is None or commit.number != last + 1:
            if first is not None and last is not None:
                yield first, last
            first = commit.number
        last = commit.number
    if first is not None and last is not None:
        yield first, last


def _read(log: Log, topic: str, first: int, last: int) -> Iterator[Batch]:
    return log.read(topic, start=Commit(first - 1), stop=Commit(last))


def _batches(log: Log, topic: str, upto: int) -> tuple[list[Batch], bool]:
    """The last changes up to a commit, oldest first, and whether there are more before them."""
    upto, back = min(upto, log.head()), 4_096
    while True:
        after = max(0, upto - back)
        page = [c for c in log.commits(topic, after, back) if c.number <= upto]
        if not after or sum(commit.rows for commit in page) >= CHANGES:
            break
        back *= 4
    left, first = CHANGES, len(page)
    while first and left > 0:
        first -= 1
        left -= page[first].rows
    if not page:
        return [], False
    found = list(_read(log, topic, page[first].number, page[-1].number))
    return found, bool(first or after)


def shown(value: Any) -> Any:
    """A value as a view shows it."""
    if isinstance(value, datetime):
        moment = to_datetime(to_micros(value))
        fraction = f".{moment.microsecond:06}" if moment.microsecond else ""
        return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return str(value)
    return value


def _micros(text: str) -> int:
    column = typed.table_of(("at",), [(text,)], ("timestamp[us, tz=UTC]",)).column(0)
    return int(column.cast(pa.int64())[0].as_py())
