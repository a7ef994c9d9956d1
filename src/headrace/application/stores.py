"""The stores of an application's views: followed beside a run, alone, or built again."""

from __future__ import annotations

from headrace.clock import Clock, SystemClock
from headrace.errors import InvalidPipeline, UnknownView, UserError
from headrace.log import Log
from headrace.pipeline.app import App
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.store.contract import Store
from headrace.store.followers import Followers, FollowerThread
from headrace.store.status import forget_others

_LOOK = 50_000


def followers_of(
    app: App,
    log: Log,
    clock: Clock | None = None,
    *,
    view: str | None = None,
    store: str | None = None,
    rebuild: str = "",
    crash_point: CrashPoint = nothing,
) -> Followers:
    """The followers of all stores of an application, or of one view. They have not begun.

    `store` is the address of those that are wanted, or the kind of address before its colon. With a
    reason to `rebuild`, each first builds a new version.
    """
    clock = clock or SystemClock()
    if view is not None and view not in app.views:
        raise UnknownView(
            f"Application {app.name!r} has no view {view!r}",
            hint=f"There are: {', '.join(sorted(app.views))}" if app.views else "It has none",
        )
    threads = [
        FollowerThread(
            log, app.name, declared.name, found, clock, crash_point=crash_point, rebuild=rebuild
        )
        for declared in app.views.values()
        if view in (None, declared.name)
        for found in map(_checked, declared.stores)
        if store in (None, found.address, found.address.partition(":")[0])
    ]
    if view is None and store is None:
        forget_others(log.home, app.name, [thread.status for thread in threads])
    if store is not None and not threads:
        there = {one.address for each in app.views.values() for one in map(_checked, each.stores)}
        raise UserError(
            f"No view of application {app.name!r} has a store {store!r}",
            hint=f"There are: {', '.join(sorted(there))}" if there else "There is none",
        )
    return Followers(threads, clock)


def bring_up_to_date(
    app: App, log: Log, *, view: str | None = None, rebuild: str = "", clock: Clock | None = None
) -> None:
    """Let the stores of a view, or of all, show what the changelogs have."""
    clock = clock or SystemClock()
    with followers_of(app, log, clock, view=view, rebuild=rebuild) as followers:
        followers.start()
        while not followers.caught_up():
            clock.sleep(_LOOK)


def _checked(store: object) -> Store:
    if not isinstance(store, Store):
        raise InvalidPipeline(
            f"{store!r} is not a store", hint="A store of your own is a class of hr.Store"
        )
    return store
