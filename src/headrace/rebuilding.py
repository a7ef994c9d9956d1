"""Computing a view again beside the live one: to see what would change, and then to switch.

found = rebuild(app, "sales", "file:./data")
print(found.diff.changed)
rebuild(app, "sales", "file:./data", switch=True)
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

from headrace.clock import SECOND, Clock, SystemClock, to_micros
from headrace.engine.crash import Reach, nothing
from headrace.engine.frames import Portions
from headrace.engine.inputs import prepare_topics
from headrace.engine.query import Query
from headrace.engine.session import SparkSettings, spark_session
from headrace.engine.steps import Step, fingerprint, steps_of
from headrace.errors import InvalidPosition, MisusedHandle, UnknownView, ViewError
from headrace.log import Log, open_log
from headrace.runner import DEFAULT_LOG, StepProgress
from headrace.streams.app import App
from headrace.views.building import BuildSink
from headrace.views.database import Database
from headrace.views.difference import Comparison, Diff, version_in
from headrace.views.location import app_folder, build_place, database_of
from headrace.views.lock import only_one, only_run
from headrace.views.outbox import Outbox
from headrace.views.stored import StoredStep, looking, steps_in, stored_steps, switched_in
from headrace.views.switching import attached, finish_switches, switch
from headrace.views.values import quoted

__all__ = ["Diff", "Rebuild", "Rebuilt", "rebuild"]

Tell = Callable[[StepProgress], None]
_LOOK = 0.25


@dataclass(frozen=True)
class Rebuilt:
    """What came of a rebuild."""

    diff: Diff
    """What is another than in the live view, at the same place in the log."""
    switched: bool
    lost: int
    """Rows that the live view counts and the log does not have any more."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The view as of a moment, where it was asked for."""


class Rebuild:
    """A view that is built beside the live one. What was built is kept, and gone on with.

    With `until`, a moment or the number of a commit, it is built as it was then, and cannot take
    the place of the live one.
    """

    def __init__(
        self,
        app: App,
        view: str,
        log: str | Log | None = None,
        *,
        until: datetime | int | None = None,
        spark: SparkSession | None = None,
        settings: SparkSettings | None = None,
        portions: Portions | None = None,
        clock: Clock | None = None,
        reach: Reach = nothing,
    ) -> None:
        self.app = app
        self.step = _step_of(app, view)
        self._spark = spark
        self._settings = settings
        self._portions = portions
        self._clock = clock or SystemClock()
        self._reach = reach
        self._stack = contextlib.ExitStack()
        self._building = self._stack.enter_context(contextlib.ExitStack())
        self._query: Query | None = None
        self._sink: BuildSink | None = None
        self._done: Mapping[str, int] | None = None
        try:
            if isinstance(log, Log):
                self.log = log
            else:
                address = log or app.log or DEFAULT_LOG
                self.log = self._stack.enter_context(open_log(address, create=False))
            self.until = None if until is None else _commit_at(self.log, until)
            """The last commit that it is built of, where that is not for the live view to say."""
            self._live = database_of(self.log.url, app.name)
            kind = "rebuild" if until is None else "until"
            self._place = build_place(self.log.url, app.name, view, kind)
            busy = f"View {view!r} is being built already"
            self._stack.enter_context(only_one(self._place.lock, busy, "Wait for it to end"))
            if view in switched_in(self._live):
                with only_run(app_folder(self.log.url, app.name), app.name):
                    finish_switches(self.log.url, app.name)
        except BaseException:
            self._stack.close()
            raise

    def build(self, tell: Tell = lambda progress: None) -> None:
        """Compute it up to where the live view is; without one, up to where the log is now."""
        self._build(steps_in(self._live).get(self.step.name), tell)
        self._reach("built")

    @property
    def lost(self) -> int:
        """Rows that the live view counts and the log does not have any more."""
        live = steps_in(self._live).get(self.step.name)
        if live is None:
            return 0
        begun = self._built.begun
        return sum(
            max(0, begun[topic].rows_after(position))
            for topic, position in live.begun.items()
            if topic in begun
        )

    def diff(self, limit: int = 20, tell: Tell = lambda progress: None) -> Diff:
        """What is another than in the live view, with so many rows of each kind.

        Both are compared at the same place in the log, even where the live one is running.
        """
        self._require_built()
        if not self._live.exists():
            with looking(built=self._place.database) as db:
                built = version_in(db, "built", self.step.name)
                assert built is not None
                return Comparison(db, None, built).diff(self.step.name, limit)
        with looking(live=self._live, built=self._place.database) as db:
            # From the first look on, the live view stays as it is, for this connection.
            db.execute("BEGIN")
            live = stored_steps(db, "live").get(self.step.name)
            self._build(live, tell)
            built = version_in(db, "built", self.step.name)
            assert built is not None
            version = version_in(db, "live", self.step.name)
            return Comparison(db, version, built).diff(self.step.name, limit)

    def rows(self) -> list[dict[str, Any]]:
        """Every row of what was built, by its key."""
        self._require_built()
        assert self.step.view is not None
        order = ", ".join(map(quoted, self.step.view.key))
        with looking(built=self._place.database) as db:
            sql = f"SELECT * FROM built.{quoted(self.step.name)} ORDER BY {order}"
            cursor = db.cursor()
            cursor.row_trace = lambda cursor, row: dict(
                zip((name for name, *_ in cursor.get_description()), row, strict=True)
            )
            return list(cursor.execute(sql))

    def switch(
        self,
        agree: Callable[[Diff], bool] = lambda diff: True,
        *,
        wait: bool = False,
        accept_loss: bool = False,
        limit: int = 20,
        tell: Tell = lambda progress: None,
    ) -> Diff | None:
        """Put it into the place of the live view, if `agree` says so; returns what has changed.

        The application must not be running meanwhile; with `wait`, this waits for its end.
        """
        self._require_built()
        if self.until is not None:
            raise MisusedHandle(
                "A view as of a moment cannot take the place of the live one",
                hint="Rebuild it without `until`",
            )
        hint = (
            "The new version is built, and kept. Stop the application and rebuild again, which "
            "goes on from here; or let it wait with --wait"
        )

        def look_again() -> None:
            tell(self._progress())
            self._clock.sleep(SECOND // 4)

        with only_run(
            app_folder(self.log.url, self.app.name),
            self.app.name,
            hint=hint,
            wait=look_again if wait else None,
        ):
            self._check_live(accept_loss)
            diff = self.diff(limit, tell)
            if not agree(diff):
                return None
            self._switch()
            return diff

    def close(self) -> None:
        """Give everything back. What was built stays."""
        self._stack.close()

    def __enter__(self) -> Rebuild:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Building

    @property
    def _built(self) -> BuildSink:
        self._require_built()
        assert self._sink is not None
        return self._sink

    def _require_built(self) -> None:
        if self._sink is None:
            raise MisusedHandle("Nothing was built yet", hint="Call build() first")

    def _build(self, live: StoredStep | None, tell: Tell) -> None:
        limits = self._limits(live)
        if self._sink is None:
            self._open(limits)
        assert self._sink is not None
        assert self._query is not None
        self._sink.limits = limits
        if limits == self._done:
            return
        try:
            self._query.start(self._sink, until_caught_up=True)
            while not self._query.wait(_LOOK):
                tell(self._progress())
            tell(self._progress())
        finally:
            self._query.stop()
        self._done = limits

    def _limits(self, live: StoredStep | None) -> dict[str, int]:
        """The last commit of each topic to read: what the live view has, or all."""
        if self.until is not None:
            return dict.fromkeys(self.step.topics, self.until)
        if live is None:
            return dict.fromkeys(self.step.topics, self.log.head())
        newest = max(position.commit for position in live.reached.values())
        reached = {topic: position.commit for topic, position in live.reached.items()}
        return {topic: reached.get(topic, newest) for topic in self.step.topics}

    def _open(self, limits: Mapping[str, int]) -> None:
        """Go on with what was built before, or begin anew where that is of no use."""
        prepare_topics(self.log, self.step)
        before = None
        with contextlib.suppress(ViewError):
            before = steps_in(self._place.database).get(self.step.name)
        if before is None or not self._of_use(before, limits):
            shutil.rmtree(self._place.folder, ignore_errors=True)
        log_file = app_folder(self.log.url, self.app.name) / "rebuild.log"
        spark = self._spark or spark_session(self._settings, log_file=log_file)
        database = Database(self._place.database, self.app.name)
        self._building.callback(database.close)
        self._query = Query(
            spark,
            self.log,
            self.step,
            self._place.checkpoint,
            portions=self._portions,
            reach=self._reach,
            name=f"{self.app.name}.{self.step.name}.rebuild",
        )
        self._sink = BuildSink(database, self.log, self.step, self._query.frames, self._reach)

    def _of_use(self, before: StoredStep, limits: Mapping[str, int]) -> bool:
        return before.fingerprint == fingerprint(self.step) and all(
            position.commit <= limits.get(topic, 0) for topic, position in before.reached.items()
        )

    def _progress(self) -> StepProgress:
        sink = self._built
        return StepProgress(self.step.name, sink.law, sink.frontier, sink.lag)

    # Switching

    def _check_live(self, accept_loss: bool) -> None:
        name = self.step.name
        if name not in steps_in(self._live):
            raise UnknownView(
                f"View {name!r} has no results yet that could be replaced",
                hint="headrace run computes it, and publishes what it declares",
            )
        if self.lost and not accept_loss:
            raise ViewError(
                f"The live view {name!r} counts {self.lost:,} rows that retention has taken from "
                "the log since, and the new version does not",
                hint="--diff shows what would be removed; --accept-loss switches all the same",
            )

    def _switch(self) -> None:
        sink = self._built
        topic = sink.prepare_changelog()
        told = any(state.end for state in self.log.topic(topic).partitions)
        with contextlib.ExitStack() as stack:
            database = Database(self._live, self.app.name)
            stack.callback(database.close)
            with attached(database, self._place.database):
                switch(database, self.step, sink.schema, topic, told=told, reach=self._reach)
            self._sink = None
            self._building.close()
            finish_switches(self.log.url, self.app.name, self._reach)
            producer = self.log.producer(id=f"{self.app.name}.{database.generation}")
            stack.callback(producer.close)
            Outbox(database, producer, self._reach).send()


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
    portions: Portions | None = None,
) -> Rebuilt:
    """Compute a view again from the log, beside the live one; returns what is another.

    With `switch` it then takes the place of the live one, in one transaction. With `until`, a
    moment or the number of a commit, it is computed as of then, and its rows are returned. `limit`
    is how many rows of each kind the diff names.
    """
    if switch and until is not None:
        raise MisusedHandle(
            "A view as of a moment cannot take the place of the live one",
            hint="Leave out `switch` or `until`",
        )
    with Rebuild(
        app, view, log, until=until, spark=spark, settings=settings, portions=portions
    ) as building:
        building.build()
        lost = building.lost
        if switch:
            diff = building.switch(wait=wait, accept_loss=accept_loss, limit=limit)
            assert diff is not None
            return Rebuilt(diff, True, lost)
        diff = building.diff(limit)
        return Rebuilt(diff, False, lost, building.rows() if until is not None else [])


def _step_of(app: App, view: str) -> Step:
    steps = {step.name: step for step in steps_of(app) if step.view is not None}
    if view not in steps:
        raise UnknownView(
            f"Application {app.name!r} has no view {view!r}",
            hint=f"There are: {', '.join(sorted(steps))}" if steps else "It has none",
        )
    return steps[view]


def _commit_at(log: Log, until: datetime | int) -> int:
    """The last commit that was made by then, at most the one of that number."""
    head = log.head()
    if isinstance(until, int):
        if not 0 <= until <= head:
            raise InvalidPosition(
                f"Commit {until} is not in the log", hint=f"The last one is {head}"
            )
        return until
    moment, low = to_micros(until), 0
    while low < head:
        middle = (low + head + 1) // 2
        if _made(log, middle) <= moment:
            low = middle
        else:
            head = middle - 1
    return low


def _made(log: Log, commit: int) -> int:
    """When a commit was made; those that went with their records are the oldest."""
    try:
        return log.commit_time(commit)
    except InvalidPosition:
        return 0
