"""`headrace stores`: the stores that views are kept in beside SQLite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from headrace.cli.failures import say
from headrace.cli.loading import load_app
from headrace.cli.options import (
    DEFAULT_LOG,
    AppLogUrl,
    AppReference,
    AsJson,
    LogUrl,
    Yes,
    confirm,
    new_app,
    show_help,
)
from headrace.cli.output import moment, plain, show, show_json, table
from headrace.clock import SystemClock
from headrace.errors import InvalidPipeline
from headrace.log import open_log
from headrace.pipeline.app import App
from headrace.store.status import StoreStatus, seconds_behind, statuses
from headrace.wording import count, many, span, when

app = new_app()

View = Annotated[str, typer.Argument(metavar="VIEW", help="The view.", show_default=False)]

_LOOK = 0.25
_STYLES = {"following": "green", "failing": "bold red", "building": "yellow"}


@app.callback(invoke_without_command=True)
def stores(ctx: typer.Context) -> None:
    """List the stores of views, follow the changes of views, and build stores again."""
    show_help(ctx)


@app.command("list")
def list_stores(log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """List the stores of a log's views, with the lag of each in changes and in time.

    With --json, one object per line.
    """
    with open_log(log, create=False) as opened:
        found = statuses(opened, SystemClock().now())
    if json:
        for status in found:
            show_json(store_json(status))
    elif not found:
        say("There are no stores: app.view(..., store=...) declares one")
    else:
        _show(found)


@app.command("run")
def run(
    reference: AppReference,
    *,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Only stores with this address, or kind of address: search, delta.",
        ),
    ] = None,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop when every store shows what its view does."),
    ] = False,
    log: AppLogUrl = None,
    json: AsJson = False,
) -> None:
    """Bring the stores of an application's views up to date, without running the application.

    headrace run does the same beside its steps. Stores follow the changelogs of the views, so they
    can catch up while the application is stopped, and on their own. With --store, each can have a
    process of its own, beside headrace run --no-stores. With --json, one object per store at the
    end.
    """
    # Imported here, since it makes --help slow.
    from headrace.application.stores import followers_of
    from headrace.cli.store_runs import until_asked

    declared = _with_stores(load_app(reference))
    with (
        open_log(log or declared.log or DEFAULT_LOG, create=False) as opened,
        followers_of(declared, opened, store=store) as followers,
    ):
        followers.start()
        code = until_asked(followers, until_caught_up=until_caught_up)
        followers.stop()
        found = followers.statuses()
    if json:
        for status in found:
            show_json(store_json(status))
    else:
        _show(found)
    if code:
        raise typer.Exit(code)


@app.command("rebuild")
def rebuild(
    reference: AppReference,
    view: View,
    *,
    yes: Yes = False,
    log: AppLogUrl = None,
    json: AsJson = False,
) -> None:
    """Build the stores of a view again, from its rows in SQLite, and switch.

    Readers see the old rows until the new version is complete. It repairs a store that someone else
    has changed. headrace rebuild computes the view itself again. With --json, one object per store.
    """
    from headrace.application.stores import followers_of
    from headrace.cli.store_runs import until_asked

    declared = _with_stores(load_app(reference))
    with (
        open_log(log or declared.log or DEFAULT_LOG, create=False) as opened,
        followers_of(declared, opened, view=view, rebuild="it was asked for") as followers,
    ):
        names = ", ".join(status.store for status in followers.statuses())
        confirm(f"Build view {view!r} again in {names or 'no store'}?", yes=yes)
        followers.start()
        code = until_asked(followers, until_caught_up=True, built=True)
        followers.stop()
        found = followers.statuses()
    if json:
        for status in found:
            show_json(store_json(status))
    else:
        say(f"Built {view!r} again in {many(len(found), 'store')}")
    if code:
        raise typer.Exit(code)


def store_json(status: StoreStatus) -> dict[str, Any]:
    """The state of a store, for other programs."""
    position = status.position
    return {
        "app": status.app,
        "view": status.view,
        "store": status.store,
        "state": status.state,
        "offset": None if position is None else position.offset,
        "generation": None if position is None else position.generation,
        "lag": status.lag,
        "seconds": seconds_behind(status),
        "applied": status.applied,
        "last_batch": moment(status.last_batch),
        "last_rows": status.last_rows,
        "error": status.error or None,
        "hint": status.hint or None,
        "built": status.built or None,
    }


def news(before: Iterable[StoreStatus], now: Iterable[StoreStatus]) -> list[str]:
    """Lines about stores that have failed, or work again, since the last look."""
    errors = {(status.view, status.store): status.error for status in before}
    lines = []
    for status in now:
        was = errors.get((status.view, status.store), "")
        what = f"store {status.store} of view {status.view!r}"
        if status.error and status.error != was:
            lines += [f"warning: {what}: {status.error}"]
            lines += [f"  → {line}" for line in status.hint.splitlines()]
            lines += ["  → The view and other stores go on. It is tried again"]
        elif was and not status.error and status.state == "following":
            lines.append(f"{what} works again")
    return lines


def _with_stores(declared: App) -> App:
    if not any(view.stores for view in declared.views.values()):
        raise InvalidPipeline(
            f"No view of application {declared.name!r} has a store",
            hint="app.view(..., store='search:')",
        )
    return declared


def _show(found: Iterable[StoreStatus]) -> None:
    lines = table("view", "store", "state", ">lag", ">behind", "last batch", ">changes")
    troubles = []
    for status in found:
        lines.add_row(
            plain(f"{status.app}.{status.view}", "bold"),
            plain(status.store),
            plain(status.state, _STYLES.get(status.state, "")),
            count(status.lag),
            span(seconds_behind(status)),
            when(status.last_batch),
            count(status.last_rows),
        )
        if status.error:
            troubles.append(dataclasses.replace(status, state="failing"))
    show(lines)
    for status in troubles:
        say(f"{status.store}: {status.error}")
        for line in status.hint.splitlines():
            say(f"  → {line}")
