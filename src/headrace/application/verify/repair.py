"""Mend what differs, by commits of the log that every follower reads."""

from __future__ import annotations

import contextlib

import pyarrow as pa

from headrace.application.stores import bring_up_to_date
from headrace.application.verify.hops import outbox_of, unsent_of
from headrace.application.verify.sides import ViewSide
from headrace.clock import SECOND, Clock
from headrace.errors import AlreadyRunning, LogBusy, StoreError
from headrace.log import LATEST, Log
from headrace.pipeline.app import App
from headrace.plan import metadata
from headrace.plan.crash_points import nothing
from headrace.schema.row_hashes import row_hashes
from headrace.store import changelog
from headrace.store.contract import Store, StoredView
from headrace.store.following import followed_in
from headrace.store.location import app_folder, database_of
from headrace.store.lock import only_one, only_run
from headrace.store.outbox import Outbox
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.difference import version_in
from headrace.store.status import StoreStatus, lock_of

_PATIENCE = 30 * SECOND
_LOOK = SECOND // 10


def publish_again(
    log: Log, app: str, view: str, store: Store, keys: pa.Table, clock: Clock
) -> None:
    """Publish rows of a view again as they are now, and delete those that it does not have.

    They are appended to its changelog while nothing can change the view, and after all of its
    earlier changes. So every store gets them in their order.
    """
    topic = changelog.topic_of(app, view)
    followed = followed_in(log, app, view, store.form)
    assert followed is not None
    strangers = _rows_in(store, followed.view, keys)
    until = clock.monotonic() + _PATIENCE
    with contextlib.closing(Database(database_of(log.home, app), app)) as database:
        _send_rest(log, app, database)
        while not _published(log, database, topic, followed.view, keys, strangers, clock):
            if clock.monotonic() >= until:
                raise LogBusy(
                    f"Changes of view {view!r} are waiting to be published, and a repair has to "
                    "come after them",
                    hint="Let the application go on, or stop it: then the repair publishes them",
                )
            clock.sleep(_LOOK)


def _published(
    log: Log,
    database: Database,
    topic: str,
    view: StoredView,
    keys: pa.Table,
    strangers: pa.Table,
    clock: Clock,
) -> bool:
    """Append the rows; False if earlier changes have still to be published."""
    moment, who = clock.now() // 1_000, (view.app, view.name)
    with database.writing() as db:  # from here on, no batch can be stored
        end = log.offset_at(topic, 0, LATEST)
        if unsent_of(log, topic, outbox_of(db, "main", topic), end) is not None:
            return False
        version = version_in(db, "main", view.name)
        assert version is not None
        found = list(ViewSide(db, version, view.columns, view.key).find(keys))
        rows = pa.Table.from_batches(found, schema=view.columns)
        there = set(row_hashes(rows.select(list(view.key))).tolist())
        gone = [h not in there for h in row_hashes(strangers.select(list(view.key))).tolist()]
        with log.producer() as producer:
            if rows.num_rows:
                stored = _stored(rows)
                made = changelog.changes(*who, view.key, stored, stored, moment)
                producer.append(topic, made)
            if any(gone):
                deleted = _stored(strangers.filter(pa.array(gone)))
                producer.append(topic, changelog.deletions(*who, view.key, deleted, moment))
    return True


def _rows_in(store: Store, view: StoredView, keys: pa.Table) -> pa.Table:
    """The rows of a store with these keys."""
    with store.live(view) as table:
        found = [batch.select(view.columns.names) for batch in table.find(keys)]
    return pa.Table.from_batches(found, schema=view.columns)


def _stored(rows: pa.Table) -> pa.Table:
    """Rows with their revision named as in the view's table."""
    names = [metadata.REVISION if name == "revision" else name for name in rows.column_names]
    return rows.rename_columns(names)


def _send_rest(log: Log, app: str, database: Database) -> None:
    """Send what a stopped application has left in its outbox. A running one does it itself."""
    with (
        contextlib.suppress(AlreadyRunning),
        only_run(app_folder(log.home, app), app),
        log.producer(id=f"{app}.{database.generation}") as producer,
    ):
        Outbox(database, log, producer, nothing).send()


def follow_if_nobody_does(app: App, log: Log, view: str, clock: Clock) -> None:
    """Bring the stores of a view up to date, unless a running process does that."""
    stores = [store for store in app.views[view].stores if isinstance(store, Store)]
    try:
        with contextlib.ExitStack() as stack:
            for store in stores:
                path = lock_of(log.home, StoreStatus(app.name, view, store.address))
                stack.enter_context(only_one(path, "It is followed", ""))
    except AlreadyRunning:
        return
    with contextlib.suppress(StoreError):  # the comparison says what is wrong with it
        bring_up_to_date(app, log, view=view, clock=clock)
