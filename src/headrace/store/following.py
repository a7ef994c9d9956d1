"""The follower of a view: brings one store up to date with the view's changelog.

It works in small units, `advance()`, and each leaves the store as of a position in the changelog. A
crash between any two lines loses nothing: the position is in the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.closing import Closing
from headrace.errors import StoreError, StoreFenced
from headrace.log import LATEST, Capability, Log
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.store.changelog import topic_of
from headrace.store.collapse import Unusable, as_parts, collapsed, read_records, steps_of
from headrace.store.contract import Store, StoredView, StorePosition, StoreTable
from headrace.store.location import database_of, stores_folder
from headrace.store.sqlite.snapshot import results_in, snapshot_of

_TRIES = 3
"""Builds that are begun again since the results have changed meanwhile."""


class Interrupted(Exception):
    """A build was asked to stop. The next one begins anew."""


@dataclass(frozen=True)
class Applied:
    """One unit of work: records read, changes applied, and the time of the newest record.

    `built` is the reason for a new version, and empty if changes were applied to the live one.
    """

    records: int = 0
    changes: int = 0
    moment: int | None = None
    built: str = ""


NOTHING = Applied()
"""There was nothing to do."""


@dataclass(frozen=True)
class Followed:
    """A view as it is now: what a store sees of it, and the generation of its results."""

    view: StoredView
    generation: str


def followed_in(log: Log, app: str, view: str, form: str) -> Followed | None:
    """A view for a store with that `form`; None if it has no results yet."""
    topic = topic_of(app, view)
    ids = log.topic_ids([topic])
    results = results_in(database_of(log.home, app), view) if topic in ids else None
    if results is None:
        return None
    schema = log.topic(topic).topic.schema
    assert schema is not None
    columns = pa.schema(list(schema.field("after").type))
    stored = StoredView(app, view, columns, results.key, stores_folder(log.home))
    epoch = 0
    if Capability.NUMBERED_APPENDS in log.capabilities:
        epoch = max(log.rollbacks(), default=0)
    # A position means something in one history of one topic, and in one form of the rows.
    text = f"{columns.to_string()}|{results.key}|{form}".encode()
    digest = hashlib.sha256(text).hexdigest()[:12]
    return Followed(stored, f"{results.generation}.{ids[topic]}.{epoch}.{digest}")


class Follower(Closing):
    """Follows one view into one store. One thread uses it."""

    def __init__(
        self,
        log: Log,
        app: str,
        view: str,
        store: Store,
        *,
        stopping: Callable[[], bool] = lambda: False,
        crash_point: CrashPoint = nothing,
    ) -> None:
        self.app = app
        self.view = view
        self.store = store
        self.topic = topic_of(app, view)
        self._log = log
        self._stopping = stopping
        self._crash_point = crash_point
        self._database = database_of(log.home, app)
        self._source: Followed | None = None
        self._table: StoreTable | None = None
        self._wanted = ""
        self.position: StorePosition | None = None
        """The position of the store, as far as it is known."""

    @property
    def end(self) -> int | None:
        """The end of the changelog; None before it exists."""
        if not self._log.topic_ids([self.topic]):
            return None
        return self._log.offset_at(self.topic, 0, LATEST)

    @property
    def lag(self) -> int | None:
        """Records of the changelog that are not applied; None if that is unknown."""
        end = self.end
        if end is None:
            return 0
        return None if self.position is None else max(0, end - self.position.offset)

    @property
    def caught_up(self) -> bool:
        """True if the store shows all that the changelog has."""
        return self.lag == 0

    def build_again(self, reason: str) -> None:
        """Let the next unit of work build a new version."""
        self._wanted = reason

    def advance(self) -> Applied:
        """Build the view, or apply the next changes to it."""
        if self._table is None and not self._open():
            return NOTHING
        assert self._source is not None and self._table is not None
        if reason := self._wanted or self._gap():
            return self._build(reason)
        return self._apply(self._source, self._table)

    def close(self) -> None:
        """Let go of the store. The next unit of work opens it again."""
        table, self._table, self._source = self._table, None, None
        if table is not None:
            table.close()

    # Changes

    def _apply(self, source: Followed, table: StoreTable) -> Applied:
        assert self.position is not None
        end = self._log.offset_at(self.topic, 0, LATEST)
        if end <= self.position.offset:
            return NOTHING
        records = read_records(self._log, self.topic, self.position.offset, end)
        # The results were of this generation after the records were read, so the records are too.
        if self._look() != source:
            self.close()
            return NOTHING
        position = StorePosition(source.generation, records.end)
        try:
            changes = collapsed(records, source.view.columns, source.view.key, position)
            if self.store.every_change:
                changes = replace(changes, steps=steps_of(records, source.view.columns))
        except Unusable as found:
            return self._build(str(found))
        self._crash_point("before apply")
        try:
            table.apply(changes)
        except StoreFenced:
            self.close()  # it may be another one's, of newer results: look again
            raise
        self._crash_point("applied")
        self.position = position
        return Applied(records.rows, len(changes), records.moment if records.batches else None)

    def _gap(self) -> str:
        """The reason for which the changelog cannot bring the store up to date; empty if it can."""
        source, reached = self._source, self.position
        assert source is not None
        if reached is None:
            return "it is new"
        if reached.generation != source.generation:
            return "its results, its columns or the settings of the store have changed"
        state = self._log.topic(self.topic).partitions[0]
        if state.first > reached.offset:
            return (
                f"retention has removed changes {reached.offset:,} to {state.first - 1:,} from the "
                "changelog"
            )
        if state.end < reached.offset:
            return f"the changelog ends at {state.end:,}, before {reached.offset:,}"
        return ""

    # New versions

    def _build(self, reason: str) -> Applied:
        """Fill a new version beside the live one, catch up, and switch."""
        self.close()
        for _ in range(_TRIES):
            if (found := self._fill(reason)) is not None:
                self._wanted = ""
                return found
        raise StoreError(
            f"The results of view {self.view!r} changed each time that it was copied to "
            f"{self.store.address}",
            hint="It is tried again",
        )

    def _fill(self, reason: str) -> Applied | None:
        """Build once; None if the results have changed meanwhile."""
        source = self._look()
        if source is None:
            return NOTHING
        # Changes after this offset are applied again to rows that may show them already.
        start = StorePosition(source.generation, self._log.offset_at(self.topic, 0, LATEST))
        with self.store.beside(source.view) as built:
            with snapshot_of(self._database, self.view, source.view.columns) as (there, rows):
                if there is None or self._look() != source:
                    return None
                parts = as_parts(self._unless_stopped(rows), source.view.key, start)
                built.fill(parts, start)
            self._crash_point("filled")
            self._source, self._table, self.position = source, built, start
            while not self.caught_up:
                self._stop_early()
                if self._apply(source, built) is NOTHING or self._table is not built:
                    return None
        self._crash_point("before store switch")
        self._table = None
        self.store.switch(source.view)
        self._crash_point("store switched")
        return Applied(built=reason) if self._open() else None

    def _unless_stopped(self, rows: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in rows:
            self._stop_early()
            yield table

    def _stop_early(self) -> None:
        if self._stopping():
            self.close()
            raise Interrupted

    # The view

    def _open(self) -> bool:
        """Open the live version in the store; False if the view has no results yet."""
        source = self._look()
        if source is None:
            return False
        self.store.check(source.view)
        table = self.store.live(source.view)
        try:
            self.position = table.position()
        except BaseException:
            table.close()
            raise
        self._source, self._table = source, table
        return True

    def _look(self) -> Followed | None:
        """The view as it is now; None if it has no results yet."""
        return followed_in(self._log, self.app, self.view, self.store.form)
