"""Verify a view: compare each hop from its source to its stores.

for found in verify(app, "file:./data"):
    print(found.view, found.differences)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.application.rebuild.rebuild import Rebuild
from headrace.application.verify.attached import captured_by
from headrace.application.verify.compare import KINDS, Compared, Suspects, compare, together
from headrace.application.verify.differences import differences, of_diff
from headrace.application.verify.hops import Cut, Hop, LogHop, StoreHop, copied_topic
from headrace.application.verify.marks import with_differing
from headrace.application.verify.patience import Patience
from headrace.application.verify.repair import follow_if_nobody_does, publish_again
from headrace.application.verify.result import Difference, HopResult, Verified, keep, last_of
from headrace.application.verify.sources import Captured, SourceHop
from headrace.application.verify.sums import RANGES, range_of
from headrace.clock import Clock, SystemClock
from headrace.closing import Closing
from headrace.errors import HeadraceError, UnknownView
from headrace.log import DEFAULT_LOG, Capability, Log, open_log
from headrace.pipeline.app import App, View
from headrace.plan.position import last_commit
from headrace.runtime.session import SparkSettings
from headrace.schema.row_hashes import NONE, Hashes, row_hashes
from headrace.store.contract import Store
from headrace.store.location import database_of
from headrace.store.sqlite.stored import steps_in

__all__ = ["Verified", "verify"]

Tell = Callable[[str, int], None]
"""Called with a hop and the rows that were read of it so far."""


class Verification(Closing):
    """The verification of an application's views. It can be done again and again."""

    def __init__(
        self,
        app: App,
        log: str | Log | None = None,
        *,
        limit: int = 20,
        duty: float = 1.0,
        spark: SparkSession | None = None,
        settings: SparkSettings | None = None,
        clock: Clock | None = None,
        tell: Tell = lambda hop, rows: None,
        captured: Callable[[Log, str], Captured | None] = captured_by,
    ) -> None:
        self.app = app
        self._captured = captured
        self._limit = limit
        self._duty = duty
        self._spark = spark
        self._settings = settings
        self._clock = clock or SystemClock()
        self._tell = tell
        self._differing = pa.table({})
        self._stack = contextlib.ExitStack()
        try:
            if isinstance(log, Log):
                self.log = log
            else:
                address = log or app.log or DEFAULT_LOG
                self.log = self._stack.enter_context(open_log(address, create=False))
            self.log.require(Capability.NUMBERED_APPENDS)
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        self._stack.close()

    def verify(self, view: str, *, changed: bool = False, repair: bool = False) -> Verified:
        """Compare each hop of a view: everything, or what has changed since the last time.

        A hop that cannot be compared says why; the others are compared all the same. With `repair`,
        what differs is mended and compared again.
        """
        declared = self._declared(view)
        last = last_of(self.log.home, self.app.name, view)
        marks = {(hop.one, hop.other): hop for hop in last.hops} if last is not None else {}
        found: list[HopResult] = []
        repaired = 0
        for hop in self.hops(declared):
            if isinstance(hop, HopResult):
                result = hop
            elif isinstance(hop, str):
                result = self._recomputed(hop)
            else:
                before = marks.get((hop.one, hop.other)) if changed else None
                result = self.compared(hop, before)
            if repair and result.differences and not isinstance(hop, HopResult):
                mended = self._mended(hop, result)
                repaired += max(0, result.differences - mended.differences)
                result = mended
            found.append(result)
        return Verified(self.app.name, view, self._clock.now(), tuple(found), repaired)

    def hops(self, view: View) -> list[Hop | str | HopResult]:
        """The hops of a view. The name of the view stands for its recomputation.

        A database that cannot be known, such as without its password, is a result with the reason.
        """
        log, app = self.log, self.app.name
        topic = copied_topic(view)
        found: list[Hop | str | HopResult] = []
        if topic is None:
            found.append(view.name)
        else:
            try:
                if (captured := self._captured(log, topic)) is not None:
                    found.append(SourceHop(log, view.name, topic, captured, self._clock))
            except HeadraceError as error:
                one, other = "its database", f"topic {topic}"
                found.append(HopResult(one, other, error=error.message, hint=error.hint))
            found.append(LogHop(log, app, view.name, topic))
        stores = [store for store in view.stores if isinstance(store, Store)]
        return [*found, *(StoreHop(log, app, view.name, store) for store in stores)]

    # Repair

    def _mended(self, hop: Hop | str, result: HopResult) -> HopResult:
        """Mend what differs, and compare again."""
        try:
            if isinstance(hop, StoreHop):
                view, keys = hop.view, self._differing
                publish_again(self.log, self.app.name, view, hop.store, keys, self._clock)
            elif isinstance(hop, SourceHop):
                hop.captured.again(hop.table, self._clock)
            else:
                view = hop if isinstance(hop, str) else hop.view
                with self._rebuild(view) as building:
                    building.build()
                    building.switch(accept_loss=False)
        except HeadraceError as error:
            return replace(result, hint=f"Not repaired. {error.message}. {error.hint}")
        if not isinstance(hop, SourceHop):
            follow_if_nobody_does(self.app, self.log, view, self._clock)
        if isinstance(hop, str):
            return self._recomputed(hop)
        again = self.compared(hop, None, self._differing)
        return replace(
            result,
            missing=again.missing,
            extra=again.extra,
            different=again.different,
            differing=again.differing,
            moving=again.moving,
            rows_differing=again.rows_differing,
            error=again.error,
            hint=again.hint,
            commit=again.commit,
            mark=with_differing(result.mark, self._differing),
        )

    # Hops

    def compared(
        self, hop: Hop, last: HopResult | None = None, scope: pa.Table | None = None
    ) -> HopResult:
        """Compare one hop: everything, what has changed since the last time, or some keys."""
        began = self._clock.monotonic()
        try:
            if last is not None and last.mark:
                scope = hop.changed_since(last.mark)
            found = self._settled(hop, scope)
        except HeadraceError as error:
            found = HopResult(hop.one, hop.other, error=error.message, hint=error.hint)
        return replace(found, took=self._clock.monotonic() - began)

    def _settled(self, hop: Hop, scope: pa.Table | None) -> HopResult:
        """Compare until each row that differs has been quiet, or patience has ended.

        A difference counts when it is seen twice, both times without a change of the row.
        """
        pace = self._pace(f"{hop.one} → {hop.other}")
        with hop.cut() as cut:
            first = compare(cut.one, cut.other, scope, pace)
            mark, commit, side, waiting = cut.mark, cut.commit, cut.one, first.suspects
            seen = _quiet(cut, waiting)
        found, rows = together(side, []), list[Difference]()
        patience = Patience(self._clock)
        while len(waiting):
            with hop.cut() as cut:
                again = compare(cut.one, cut.other, waiting.keys, pace).suspects
                if hop.may_lack:
                    again = again.only(again.kinds != KINDS.index("missing"))
                quiet = _quiet(cut, again)
                settled = np.isin(again.hashes, quiet) & np.isin(again.hashes, seen)
                real, waiting, seen = again.only(settled), again.only(~settled), quiet
                found, commit = together(side, [found, real]), cut.commit
                rows += differences(hop, cut, real, self._limit - len(rows))
            if len(waiting) and not patience.goes_on(cut.mark):
                break
        self._differing = found.keys
        mark = with_differing(mark, found.keys)
        return self._result(hop, first, found, scope, len(waiting), commit, mark, rows)

    def _result(
        self,
        hop: Hop,
        first: Compared,
        found: Suspects,
        scope: pa.Table | None,
        moving: int,
        commit: int,
        mark: Any,
        rows: Sequence[Difference],
    ) -> HopResult:
        touched = RANGES if scope is None else len(np.unique(range_of(row_hashes(scope))))
        return HopResult(
            hop.one,
            hop.other,
            rows=first.one.rows,
            rows_other=first.other.rows,
            ranges=touched,
            differing=len(np.unique(range_of(found.hashes))),
            missing=found.count("missing"),
            extra=found.count("extra"),
            different=found.count("different"),
            moving=moving,
            commit=commit,
            checksum=first.one.total,
            whole=scope is None,
            rows_differing=tuple(rows),
            mark=mark,
        )

    def _recomputed(self, view: str) -> HopResult:
        """Compare a view that is no copy with one computed from the log by itself."""
        began = self._clock.monotonic()
        one, other = "log, recomputed", f"view {view}"
        try:
            with self._rebuild(view) as building:
                building.build(lambda progress: self._tell(f"{one} → {other}", 0))
                diff = building.diff(self._limit)
        except HeadraceError as error:
            found = HopResult(one, other, error=error.message, hint=error.hint)
        else:
            step = steps_in(database_of(self.log.home, self.app.name))[view]
            found = of_diff(diff, one, other, last_commit(step.reached))
        return replace(found, took=self._clock.monotonic() - began)

    def _rebuild(self, view: str) -> Rebuild:
        return Rebuild(
            self.app,
            view,
            self.log,
            spark=self._spark,
            settings=self._settings,
            clock=self._clock,
        )

    def _declared(self, view: str) -> View:
        if view not in self.app.views:
            raise UnknownView(
                f"Application {self.app.name!r} has no view {view!r}",
                hint=f"There are: {', '.join(sorted(self.app.views))}"
                if self.app.views
                else "It has none",
            )
        return self.app.views[view]

    def _pace(self, name: str) -> Callable[[int], None]:
        """Tell of progress, and rest so that reading takes no more than its share of the time."""
        clock, rows, last = self._clock, 0, self._clock.monotonic()

        def pace(read: int) -> None:
            nonlocal rows, last
            rows += read
            self._tell(name, rows)
            if self._duty < 1:
                took = clock.monotonic() - last
                clock.sleep(int(took * (1 - self._duty) / self._duty))
                last = clock.monotonic()

        return pace


def verify(
    app: App,
    log: str | Log | None = None,
    *,
    view: str | None = None,
    changed: bool = False,
    repair: bool = False,
    limit: int = 20,
    spark: SparkSession | None = None,
    settings: SparkSettings | None = None,
) -> list[Verified]:
    """Compare views with what they are derived from, hop by hop, while everything may be running.

    Each view is compared with the changes of the table that it copies, or else with a
    recomputation, and with its stores. With `changed`, only rows are compared that have changed
    since the last verification, or that differed then. The first `limit` rows of each hop that
    differ are returned.
    """
    with Verification(app, log, limit=limit, spark=spark, settings=settings) as verification:
        names = [view] if view is not None else sorted(app.views)
        found = [verification.verify(name, changed=changed, repair=repair) for name in names]
        for one in found:
            keep(verification.log.home, one)
        return found


def _quiet(cut: Cut, suspects: Suspects) -> Hashes:
    """Those of some keys that have not changed since the moment of which a cut is."""
    return suspects.hashes[~np.isin(suspects.hashes, cut.moved())] if len(suspects) else NONE
