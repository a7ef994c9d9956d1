"""Waiting for a read model: until a view shows what a commit, such as a command's, has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from headrace.application.chains import writers_of_topics
from headrace.clock import MILLISECOND, Clock, SystemClock, micros
from headrace.errors import InvalidPosition, UnknownView, UserError, ViewBehind
from headrace.log import DEFAULT_LOG, LATEST, Capability, Log, open_log
from headrace.pipeline.app import App, View
from headrace.plan.steps import Step, steps_of, topics_of
from headrace.store.changelog import topic_of
from headrace.store.contract import Store
from headrace.store.following import followed_in
from headrace.store.location import database_of
from headrace.store.sqlite.stored import StoredStep, sent_by, steps_in
from headrace.store.status import StoreStatus, noted

__all__ = ["wait_for"]

_LOOK_AGAIN = 20 * MILLISECOND


def wait_for(
    app: App,
    view: str,
    *,
    commit: int | None,
    timeout: timedelta,
    store: str | None = None,
    log: str | Log | None = None,
    clock: Clock | None = None,
) -> None:
    """Wait until a view has everything up to a commit, such as `handled.commit`.

    So whoever has sent a command reads its effect. `store` is the address, or its kind before the
    colon, of a store that the view is read from; else it is SQLite. Some process has to run the
    application. `ViewBehind` is raised after `timeout`, and says how far the view is. A command
    without a commit has changed nothing to wait for.
    """
    if commit is None:
        return
    if not isinstance(log, Log):
        with open_log(log or app.log or DEFAULT_LOG, create=False) as opened:
            return wait_for(
                app, view, commit=commit, timeout=timeout, store=store, log=opened, clock=clock
            )
    log.require(Capability.NUMBERED_APPENDS)
    if commit > log.head():
        raise InvalidPosition(
            f"Commit {commit} is not in the log", hint=f"The last is {log.head()}"
        )
    waiting, clock = _Waiting(app, log, _view(app, view), store), clock or SystemClock()
    deadline = clock.monotonic() + micros(timeout)
    while (missing := waiting.missing(commit)) is not None:
        if clock.monotonic() >= deadline:
            raise ViewBehind(
                f"View {view!r} of application {app.name!r} does not show commit {commit} after "
                f"{timeout.total_seconds():g} s: {missing.what}",
                hint="Wait longer, or see whether the application runs and is not far behind: "
                "headrace doctor MODULE:APP",
                view=view,
                commit=commit,
                reached=missing.reached,
            )
        clock.sleep(_LOOK_AGAIN)


@dataclass(frozen=True)
class _Missing:
    """The obstacle that is left, and the commit that is reached; None before the first."""

    what: str
    reached: int | None


@dataclass
class _Waiting:
    """One call that waits. Targets stay as they were first seen, so that they can be reached."""

    app: App
    log: Log
    view: View
    store: str | None
    _targets: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._steps = steps_of(self.app)
        self._writers = writers_of_topics(self._steps)
        self._place = database_of(self.log.home, self.app.name)
        self._kept = None if self.store is None else _store(self.view, self.store)

    def missing(self, commit: int) -> _Missing | None:
        """The part that the view does not show yet; None if it shows all up to the commit."""
        stored = steps_in(self._place)
        last = next(step for step in self._steps if step.view is self.view)
        if (found := self._missing(last, commit, stored, ())) is not None:
            return found
        return None if self._kept is None else self._behind(self._kept, stored[last.name])

    def _missing(
        self, step: Step, commit: int, stored: dict[str, StoredStep], after: Sequence[Step]
    ) -> _Missing | None:
        """The commits that a step, or one whose results it reads, has yet to read."""
        mine = stored.get(step.name)
        if mine is None:
            return _Missing(f"step {step.name!r} has no results yet", None)
        for topic in dict.fromkeys(topic.name for topic in topics_of(step)):
            upto = commit
            writer = self._writers.get(topic)
            if writer is not None and writer not in (*after, step):
                if (found := self._missing(writer, commit, stored, (*after, step))) is not None:
                    return found
                if not self._is_sent(topic):
                    return _Missing(f"step {writer.name!r} has not sent its results yet", None)
                upto = self._targets.setdefault(topic, self.log.head())
            place = mine.reached.get(topic)
            reached = 0 if place is None else place.commit
            page = self.log.commits(topic, reached, 1) if self.log.topic_ids([topic]) else []
            if page and page[0].number <= upto:
                return _Missing(f"step {step.name!r} is at commit {reached} of {topic!r}", reached)
        return None

    def _behind(self, store: Store, step: StoredStep) -> _Missing | None:
        """The part of the view's changelog that a store has yet to apply."""
        topic = topic_of(self.app.name, self.view.name)
        if not self._is_sent(topic):
            return _Missing(f"step {step.name!r} has not sent its changes yet", None)
        end = self._targets.setdefault(topic, self.log.offset_at(topic, 0, LATEST))
        status = StoreStatus(self.app.name, self.view.name, store.address)
        known = noted(self.log.home, status)
        now = followed_in(self.log, self.app.name, self.view.name, store.form)
        place = None if known is None else known.position
        if place is None or now is None or place.generation != now.generation:
            return _Missing(f"store {store.address} is not filled", None)
        if place.offset >= end:
            return None
        return _Missing(f"store {store.address} has {end - place.offset:,} changes to apply", None)

    def _is_sent(self, topic: str) -> bool:
        """True if nothing for a topic waits in the outbox."""
        waiting = sent_by(self._place, topic)
        if waiting is None:
            return True
        producer, sequence = waiting
        last = self.log.last_sequence(producer)
        return last is not None and last >= sequence


def _view(app: App, view: str) -> View:
    if view not in app.views:
        raise UnknownView(
            f"Application {app.name!r} has no view {view!r}",
            hint=f"There are: {', '.join(sorted(app.views))}" if app.views else "It has none",
        )
    return app.views[view]


def _store(view: View, wanted: str) -> Store:
    found = [one for one in view.stores if wanted in (one.address, one.address.partition(":")[0])]
    stores = [one for one in found if isinstance(one, Store)]
    if not stores:
        there = ", ".join(one.address for one in view.stores)
        raise UserError(
            f"View {view.name!r} has no store {wanted!r}",
            hint=f"It has: {there}" if there else "It is in SQLite alone: leave out store=",
        )
    return stores[0]
