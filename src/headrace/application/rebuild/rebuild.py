"""Rebuild a view beside the live one: see what would change, and then switch.

found = rebuild(app, "sales", "file:./data")
print(found.diff.changed)
rebuild(app, "sales", "file:./data", switch=True)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from headrace.application.chains import check_inner, inner_steps
from headrace.application.rebuild.building import Build, limits_of, make_room
from headrace.application.run import StepProgress
from headrace.application.stores import bring_up_to_date
from headrace.clock import SECOND, Clock, SystemClock
from headrace.closing import Closing
from headrace.errors import MisusedHandle, UnknownView, ViewError
from headrace.log import DEFAULT_LOG, Capability, Log, open_log
from headrace.pipeline.app import App
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.gaps import Gaps
from headrace.plan.position import commit_by
from headrace.plan.source_options import BatchLimits
from headrace.plan.steps import Step, prepare_topics, steps_of, with_schemas
from headrace.runtime.cluster import require_local
from headrace.runtime.session import SparkSettings, spark_session
from headrace.store.location import app_folder, build_place, database_of
from headrace.store.lock import only_one, only_run
from headrace.store.sqlite.difference import Comparison, Diff, version_in
from headrace.store.sqlite.stored import (
    StoredStep,
    looking,
    rows_in,
    steps_in,
    stored_steps,
    switched_in,
)
from headrace.store.sqlite.switching import finish_switches, take_over

__all__ = ["Diff", "Rebuild", "Rebuilt", "rebuild"]

Tell = Callable[[StepProgress], None]


@dataclass(frozen=True)
class Rebuilt:
    """The outcome of a rebuild."""

    diff: Diff
    """The differences from the live view, at the same position in the log."""
    switched: bool
    lost: int
    """Rows that the live view counts and the log no longer has."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the view as of `until`."""


class Rebuild(Closing):
    """A view that is built beside the live one. A build is kept, and resumed next time.

    With `until`, a time or the number of a commit, the view is built as of then. It can replace the
    live one only if it is built to go `back`: then the next run continues from that moment.
    """

    def __init__(
        self,
        app: App,
        view: str,
        log: str | Log | None = None,
        *,
        until: datetime | int | None = None,
        back: bool = False,
        spark: SparkSession | None = None,
        settings: SparkSettings | None = None,
        batch_limits: BatchLimits | None = None,
        clock: Clock | None = None,
        crash_point: CrashPoint = nothing,
    ) -> None:
        self.app = app
        self.step, self._inner = _step_of(app, view)
        self._back = back
        if back:
            _check_back(self.step)
        self._spark = spark
        self._settings = settings
        self._batch_limits = batch_limits
        self._clock = clock or SystemClock()
        self._crash_point = crash_point
        self._stack = contextlib.ExitStack()
        self._build: Build | None = None
        try:
            if isinstance(log, Log):
                self.log = log
            else:
                address = log or app.log or DEFAULT_LOG
                self.log = self._stack.enter_context(open_log(address, create=False))
            self.log.require(Capability.COMMITS)
            self.until = None if until is None else commit_by(self.log, until)
            """The last commit to read, instead of that of the live view."""
            self._live = database_of(self.log.home, app.name)
            kind = "rebuild" if until is None or back else "until"
            self._place = build_place(self.log.home, app.name, view, kind)
            busy = f"View {view!r} is already being built"
            self._stack.enter_context(only_one(self._place.lock, busy, "Wait for it to end"))
            if view in switched_in(self._live):
                with only_run(app_folder(self.log.home, app.name), app.name):
                    finish_switches(self.log.home, app.name)
        except BaseException:
            self._stack.close()
            raise

    def build(self, tell: Tell = lambda progress: None) -> None:
        """Compute up to the position of the live view, or without one to the end of the log."""
        self._advance(steps_in(self._live).get(self.step.name), tell)
        self._crash_point("built")

    @property
    def lost(self) -> int:
        """Rows that the live view counts and the log no longer has."""
        live = steps_in(self._live).get(self.step.name)
        if live is None:
            return 0
        begun = self._built.sink.begun
        return sum(
            max(0, begun[topic].rows_after(position))
            for topic, position in live.begun.items()
            if topic in begun
        )

    def diff(self, limit: int = 20, tell: Tell = lambda progress: None) -> Diff:
        """The differences from the live view, with at most `limit` rows of each kind.

        Both are compared at the same position in the log, even while the live one runs.
        """
        there = self._live.exists()
        databases = {"live": self._live} if there else {}
        with looking(**databases, built=self._built.place.database) as db:
            # The first read pins a snapshot of the live view for this connection.
            db.execute("BEGIN")
            live = None
            if there:
                self._advance(stored_steps(db, "live").get(self.step.name), tell)
                live = version_in(db, "live", self.step.name)
            built = version_in(db, "built", self.step.name)
            assert built is not None
            return Comparison(db, live, built).diff(self.step.name, limit)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the build, by key."""
        assert self.step.view is not None
        return rows_in(self._built.place.database, self.step.name, self.step.view.key)

    def switch(
        self,
        agree: Callable[[Diff], bool] = lambda diff: True,
        *,
        wait: bool = False,
        accept_loss: bool = False,
        limit: int = 20,
        tell: Tell = lambda progress: None,
    ) -> Diff | None:
        """Replace the live view if `agree` returns True; return the differences.

        The application must not be running; with `wait`, this waits for its end. The stores of the
        view follow at once.
        """
        if self.until is not None and not self._back:
            raise _not_live()
        hint = (
            "The new version is built, and kept. Stop the application and rebuild again, which "
            "resumes here; or let it wait with --wait"
        )

        def look_again() -> None:
            tell(self._progress())
            self._clock.sleep(SECOND // 4)

        with only_run(
            app_folder(self.log.home, self.app.name),
            self.app.name,
            hint=hint,
            wait=look_again if wait else None,
        ):
            self._check_live(accept_loss)
            topic, schema = self._built.sink.prepare_changelog(), self._built.sink.schema
            diff = self.diff(limit, tell)
            if not agree(diff):
                return None
            self._let_go()
            take_over(self.log, self.step, schema, topic, self._crash_point)
            bring_up_to_date(self.app, self.log, view=self.step.name, clock=self._clock)
            return diff

    def close(self) -> None:
        """Release all resources. The build stays."""
        self._stack.close()

    # Building

    @property
    def _built(self) -> Build:
        if self._build is None:
            raise MisusedHandle("Nothing is built yet", hint="Call build() first")
        return self._build

    def _advance(self, live: StoredStep | None, tell: Tell) -> None:
        """Build up to the position of the live view, from an earlier build if possible."""
        if self.until is not None:
            limits = dict.fromkeys(self.step.topics, self.until)
        else:
            if live is not None:
                Gaps(self.log, live.name, live.reached).check(live.reached)
            limits = limits_of(self.step, live, self.log.head())
        if self._build is not None and self._build.is_ahead(limits):
            self._let_go()
        if self._build is None:
            prepare_topics(self.log, self.step)
            check_inner(self.step, self._inner, steps_in(self._live))
            log_file = app_folder(self.log.home, self.app.name) / "rebuild.log"
            make_room(self.log, self._place, self.step, limits)
            spark = self._spark or spark_session(self._settings, log_file=log_file)
            require_local(spark, self.log.url)
            self._build = Build(
                spark,
                self.log,
                with_schemas(self.log, self.step),
                self._place,
                batch_limits=self._batch_limits,
                crash_point=self._crash_point,
            )
            self._stack.callback(self._let_go)
        self._build.advance(limits, lambda: tell(self._progress()))

    def _let_go(self) -> None:
        if self._build is not None:
            self._build.close()
            self._build = None

    def _progress(self) -> StepProgress:
        sink = self._built.sink
        return StepProgress(
            self.step.name, sink.law, sink.frontier, sink.lag, delay=self.step.delay
        )

    # Switching

    def _check_live(self, accept_loss: bool) -> None:
        name = self.step.name
        if name not in steps_in(self._live):
            raise UnknownView(
                f"View {name!r} has no results yet that could be replaced",
                hint="headrace run computes and publishes it",
            )
        if self.step.selective:
            raise ViewError(
                f"Topic {self.step.selective[0].topic!r} has retractions or a selection of the "
                f"changes of view {name!r}, which do not match the new version",
                hint="Rename the new version, and publish it to another topic",
            )
        if self.lost and not accept_loss:
            raise ViewError(
                f"The live view {name!r} counts {self.lost:,} rows that retention has removed from "
                "the log since, and the new version does not",
                hint="--diff shows what would be removed; --accept-loss switches anyway",
            )


def rebuild(
    app: App,
    view: str,
    log: str | Log | None = None,
    *,
    until: datetime | int | None = None,
    switch: bool = False,
    wait: bool = False,
    accept_loss: bool = False,
    limit: int = 20,
    spark: SparkSession | None = None,
    settings: SparkSettings | None = None,
    batch_limits: BatchLimits | None = None,
) -> Rebuilt:
    """Rebuild a view from the log, beside the live one; return the differences.

    With `switch` the new version then replaces the live one, in one transaction, and the stores of
    the view follow. With `until`, a time or the number of a commit, the view is built as of then,
    and its rows are returned; with `switch` as well, the view goes back to that moment, and the
    next run continues from there. `limit` is the number of rows of each kind in the diff.
    """
    with Rebuild(
        app,
        view,
        log,
        until=until,
        back=switch and until is not None,
        spark=spark,
        settings=settings,
        batch_limits=batch_limits,
    ) as building:
        building.build()
        lost = building.lost
        if switch:
            diff = building.switch(wait=wait, accept_loss=accept_loss, limit=limit)
            assert diff is not None
            return Rebuilt(diff, True, lost)
        diff = building.diff(limit)
        return Rebuilt(diff, False, lost, building.rows() if until is not None else [])


def _not_live() -> MisusedHandle:
    return MisusedHandle(
        "A view as of an earlier time cannot replace the live one",
        hint="Rebuild it without `until`, or to go back: Rebuild(..., until=..., back=True)",
    )


def _check_back(step: Step) -> None:
    """Check that a step can go back without publishing anything a second time."""
    topics = [*step.outputs, *step.late]
    if topics:
        raise ViewError(
            f"View {step.name!r} cannot go back: its step also publishes to {', '.join(topics)}, "
            "and would publish the rows after that moment again",
            hint="--until without --switch shows the rows of that moment. Keep a view of its own "
            "for what you publish",
        )


def _step_of(app: App, view: str) -> tuple[Step, list[Step]]:
    """The step of a view, and the inner steps of its chain."""
    declared = steps_of(app)
    steps = {step.name: step for step in declared if step.view is not None}
    if view not in steps:
        raise UnknownView(
            f"Application {app.name!r} has no view {view!r}",
            hint=f"There are: {', '.join(sorted(steps))}" if steps else "It has none",
        )
    return steps[view], inner_steps(steps[view], declared)
