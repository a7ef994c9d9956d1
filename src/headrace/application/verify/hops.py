"""Hops: a table and the one derived from it, opened as of one moment that the log can name."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import apsw
import numpy as np
import pyarrow as pa

from headrace.application.verify.marks import Mark, differing_in
from headrace.application.verify.result import Write
from headrace.application.verify.sides import (
    Side,
    StoreSide,
    TopicSide,
    ViewSide,
    changed_keys,
    ends_of,
    keys_of,
    moved_keys,
    records,
)
from headrace.errors import StoreError, UnknownView
from headrace.log import LATEST, Log
from headrace.operators.table_join.declare import TableJoin
from headrace.pipeline.app import View
from headrace.pipeline.tables import topic_of_changes
from headrace.plan import metadata
from headrace.plan.gaps import Gaps
from headrace.plan.position import last_commit
from headrace.schema.row_hashes import NONE, Hashes, row_hashes
from headrace.store.changelog import topic_of
from headrace.store.contract import Store
from headrace.store.following import Followed, followed_in
from headrace.store.location import database_of
from headrace.store.sqlite.difference import Version, version_in
from headrace.store.sqlite.stored import looking, stored_steps
from headrace.store.sqlite.typed import parse_arrow


@dataclass(frozen=True)
class Cut:
    """Both tables as of a commit. `moved` gives the keys that may differ since they changed."""

    one: Side
    other: Side
    commit: int
    moved: Callable[[], Hashes]
    mark: Mark


class Hop(ABC):
    """A table, `one`, and the `other`, which is derived from it."""

    one: str
    other: str
    view: str
    may_lack: bool = False
    """True if the other table may lack rows: they disappear by themselves."""

    @abstractmethod
    def cut(self) -> contextlib.AbstractContextManager[Cut]:
        """Both tables now, for a `with` block."""

    @abstractmethod
    def changed_since(self, mark: Mark) -> pa.Table | None:
        """The keys that have changed since a verification, and those that differed then.

        None if the log cannot say, so that everything has to be compared.
        """

    @abstractmethod
    def last_writes(self, keys: pa.Table) -> dict[int, Write]:
        """The last write of each of these keys that the log has, by the hash of the key."""


class LogHop(Hop):
    """The changes of a captured table in the log, and the view that is a copy of it."""

    def __init__(self, log: Log, app: str, view: str, topic: str) -> None:
        self.one, self.other = f"topic {topic}", f"view {view}"
        self._log = log
        self._app = app
        self.view = view
        self._topic = topic
        self._start: list[int] | None = None

    @contextlib.contextmanager
    def cut(self) -> Iterator[Cut]:
        with _view(self._log, self._app, self.view) as (db, version):
            step = stored_steps(db, _LIVE)[self.view]
            Gaps(self._log, step.name, step.reached).check(step.reached)
            place = step.reached[self._topic]
            columns, key = _columns(version), version.key
            one = TopicSide(self._log, self._topic, self._start, place.offsets, columns, key)
            keys = pa.schema([columns.field(name) for name in key])

            def moved() -> Hashes:
                # Compaction may have removed what the view shows, for the sake of a later change.
                later = ends_of(self._log, self._topic)
                return moved_keys(self._log, self._topic, place.offsets, later, keys)

            mark = {"id": place.id, "offsets": list(place.offsets)}
            yield Cut(one, ViewSide(db, version, columns, key), place.commit, moved, mark)

    def changed_since(self, mark: Mark) -> pa.Table | None:
        if mark.get("id") != self._log.topic_ids([self._topic]).get(self._topic):
            return None
        with self.cut() as cut:
            stop, schema = cut.mark["offsets"], cut.one.key_columns
        if (known := differing_in(mark, schema)) is None:
            return None
        self._start = since(mark, known)
        return changed_between(self._log, self._topic, mark["offsets"], stop, known)

    def last_writes(self, keys: pa.Table) -> dict[int, Write]:
        return last_writes(self._log, self._topic, keys)


class StoreHop(Hop):
    """A view in SQLite, and in a store that follows it."""

    def __init__(self, log: Log, app: str, view: str, store: Store) -> None:
        self.one, self.other = f"view {view}", store.address
        self.store = store
        self.may_lack = store.expires
        self._log = log
        self._app = app
        self.view = view
        self._topic = topic_of(app, view)

    @contextlib.contextmanager
    def cut(self) -> Iterator[Cut]:
        with contextlib.ExitStack() as stack:
            followed = self._followed()
            table = stack.enter_context(self.store.live(followed.view))
            place = table.position()
            if place is None:
                raise StoreError(
                    f"View {self.view!r} was never filled into {self.store.address}",
                    hint="headrace run, or headrace stores run, does it",
                )
            if place.generation != followed.generation:
                raise StoreError(
                    f"{self.store.address} has other results of view {self.view!r}, and is to be "
                    "built again",
                    hint="headrace run, or headrace stores run, does it",
                )
            end = self._log.offset_at(self._topic, 0, LATEST)
            start = min(place.offset, end)
            db, version = stack.enter_context(_view(self._log, self._app, self.view))
            step = stored_steps(db, _LIVE)[self.view]
            waiting = outbox_of(db, _LIVE, self._topic)
            columns, key = followed.view.columns, followed.view.key

            def moved() -> Hashes:
                keys = pa.schema([columns.field(name) for name in key])
                found = moved_keys(self._log, self._topic, [start], self._ends(), keys)
                unsent = unsent_of(self._log, self._topic, waiting, end)
                return np.concatenate([found, row_hashes(_keys_in(unsent, keys))])

            yield Cut(
                ViewSide(db, version, columns, key),
                StoreSide(table, self.store.address, columns, key),
                last_commit(step.reached),
                moved,
                {"generation": followed.generation, "offsets": [start]},
            )

    def changed_since(self, mark: Mark) -> pa.Table | None:
        followed = self._followed()
        if mark.get("generation") != followed.generation:
            return None
        columns, key = followed.view.columns, followed.view.key
        known = differing_in(mark, pa.schema([columns.field(name) for name in key]))
        if known is None:
            return None
        return changed_between(self._log, self._topic, mark["offsets"], self._ends(), known)

    def last_writes(self, keys: pa.Table) -> dict[int, Write]:
        return last_writes(self._log, self._topic, keys)

    def _followed(self) -> Followed:
        found = followed_in(self._log, self._app, self.view, self.store.form)
        if found is None:
            raise _no_results(self.view)
        return found

    def _ends(self) -> list[int]:
        return [self._log.offset_at(self._topic, 0, LATEST)]


_LIVE = "live"


@contextlib.contextmanager
def _view(log: Log, app: str, view: str) -> Iterator[tuple[apsw.Connection, Version]]:
    """A snapshot of a view in SQLite."""
    path = database_of(log.home, app)
    if not path.exists():
        raise _no_results(view)
    with looking(live=path) as db:
        db.execute("BEGIN")
        version = version_in(db, _LIVE, view)
        if version is None:
            raise _no_results(view)
        yield db, version


def _no_results(view: str) -> UnknownView:
    return UnknownView(f"View {view!r} has no results yet", hint="headrace run computes it")


def _columns(version: Version) -> pa.Schema:
    """The columns of a view without its revision."""
    return pa.schema(
        [(n, parse_arrow(t)) for n, t in version.columns.items() if n != metadata.REVISION]
    )


def changed_between(
    log: Log, topic: str, start: list[int], stop: list[int], known: pa.Table
) -> pa.Table:
    """Known keys, and those that changed between offsets of a topic, each once."""
    found = [keys for _, keys in changed_keys(log, topic, start, stop, known.schema)]
    keys = pa.concat_tables([known, *found])
    _, first = np.unique(row_hashes(keys), return_index=True)
    return keys.take(first)


def since(mark: Mark, known: pa.Table) -> list[int] | None:
    """The offsets from which a topic has all rows to compare again; None for its first ones.

    The rows of known keys may be older than the mark.
    """
    return None if len(known) else list(mark["offsets"])


def outbox_of(db: apsw.Connection, schema: str, topic: str) -> list[pa.Table]:
    """The entries of the outbox for a topic: those that were sent last may still be in it."""
    rows = db.execute(
        f"SELECT data FROM {schema}._headrace_outbox WHERE topic = ? ORDER BY sequence", (topic,)
    )
    return [pa.ipc.open_stream(data).read_all() for (data,) in rows]


def unsent_of(log: Log, topic: str, entries: list[pa.Table], end: int) -> pa.Table | None:
    """Rows of the outbox that the topic, whose end was there, does not have; None if it has all."""
    if not entries:
        return None
    waiting = pa.concat_tables(entries)
    first = max(0, end - waiting.num_rows)
    stop = [log.offset_at(topic, 0, LATEST)]
    names = ["key", "after", "source", "op"]
    sent = [
        row_hashes(pa.Table.from_batches([batch.data.select(names)]))
        for batch in records(log, topic, [first], stop, names)
    ]
    there = np.isin(row_hashes(waiting.select(names)), np.concatenate([NONE, *sent]))
    return None if there.all() else waiting.filter(pa.array(~there))


def _keys_in(rows: pa.Table | None, keys: pa.Schema) -> pa.Table:
    return keys.empty_table() if rows is None else keys_of(rows, keys)


def last_writes(log: Log, topic: str, keys: pa.Table) -> dict[int, Write]:
    """The last write of each of these keys in a topic of changes, by the hash of the key."""
    wanted, found = row_hashes(keys), dict[int, Write]()
    changes = changed_keys(log, topic, None, ends_of(log, topic), keys.schema, "source")
    for batch, there in changes:
        hashes = row_hashes(there)
        for place in np.flatnonzero(np.isin(hashes, wanted)):
            known, commit = found.get(int(hashes[place])), batch.commit or 0
            if known is None or known.commit <= commit:
                source = batch.data.column("source")[int(place)].as_py() or {}
                found[int(hashes[place])] = Write(commit, batch.timestamp, source.get("tx"))
    return found


def copied_topic(view: View) -> str | None:
    """The topic of captured changes that a view is a copy of; None if it is computed."""
    stream = view.stream
    if not isinstance(stream, TableJoin) or stream.links:
        return None
    return topic_of_changes(stream.first)
