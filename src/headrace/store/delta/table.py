"""One version of a view in a Delta table. A batch and its position are one commit of the table."""

from __future__ import annotations

import functools
import json
import logging
import operator
from collections.abc import Iterable, Iterator
from datetime import timedelta

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction
from pyarrow import dataset

from headrace.errors import StoreError, StoreFenced, StoreUnavailable
from headrace.schema.row_hashes import row_hashes
from headrace.store.contract import Changes, StoredView, StorePosition, StoreTable
from headrace.store.delta.history import CLOSES, CURRENT, TO, begun, merged
from headrace.store.delta.history import COLUMNS as history_columns
from headrace.store.delta.lake import Place, note_of
from headrace.store.progress import Progress, must_apply

_NOTE = "headrace"
"""The note in each commit: the results that the table has, and the version it was built as."""

_TIDY_EVERY = 20
"""Commits between two compactions."""

_GONE = "_headrace_deleted"
_ROWS_AT_ONCE = 50_000

_log = logging.getLogger(__name__)


class DeltaVersion(StoreTable):
    """A version of a view. `version` names one that is built; the live one knows its own."""

    def __init__(
        self,
        place: Place,
        view: StoredView,
        version: str | None,
        *,
        keep: timedelta,
        history: bool = False,
    ) -> None:
        self._place = place
        self._view = view
        self._version = version
        self._keep = keep
        self._history = history
        self._columns = pa.schema([*view.columns, *(history_columns if history else ())])
        self._known: Progress | None = None
        """The last state that this process has seen."""
        self._seen: tuple[int, Progress] | None = None
        """The notes of commits of the table, by number, so that each is read once."""

    def close(self) -> None:
        self._seen = None

    def position(self) -> StorePosition | None:
        with self._place.errors():
            self._known = self._progress(self._place.open())
        return self._known.position

    def fill(self, parts: Iterable[Changes], position: StorePosition) -> None:
        failed: list[BaseException] = []

        def rows_of_parts() -> Iterator[pa.RecordBatch]:
            try:
                for part in parts:
                    batches = part.rows.to_batches()
                    yield from map(begun, batches) if self._history else batches
            except BaseException as failure:
                failed.append(failure)  # Arrow would make another error of it
                raise

        rows = pa.RecordBatchReader.from_batches(self._columns, rows_of_parts())
        try:
            with self._place.errors():
                deltalake.write_deltalake(
                    self._place.uri,
                    rows,
                    mode="error" if self._version else "append",
                    storage_options=self._place.settings,
                    commit_properties=_recorded(position, self._version),
                )
        except StoreError:
            if failed:
                raise failed[0] from None
            raise

    def apply(self, changes: Changes) -> None:
        with self._place.errors():
            table = self._place.open()
            now = self._progress(table)
            if not must_apply(self._what, self._known or now, now, changes.position):
                self._known = now
                return
            table = table or self._created()
            self._merge(table, changes, _recorded(changes.position, now.version))
            self._known = Progress(now.version, changes.position)
            self._tidy(table, _recorded(changes.position, now.version))

    def read(self) -> Iterator[pa.RecordBatch]:
        with self._place.errors():
            table = self._place.open()
            if table is None:
                return
            yield from self._rows(table)

    def find(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        with self._place.errors():
            table = self._place.open()
            if table is not None:
                yield from self._found(table, keys.select(list(self._view.key)))

    def _rows(
        self, table: deltalake.DeltaTable, keys: pa.Table | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows that are valid now: all of them, or those with some keys and a few others."""
        rows = table.to_pyarrow_dataset()
        wanted = [dataset.field(CURRENT)] if self._history else []
        if keys is not None:
            wanted += _conditions(keys, rows.schema)
        filter = functools.reduce(operator.and_, wanted) if wanted else None
        for batch in rows.to_batches(filter=filter, batch_size=_ROWS_AT_ONCE):
            some = pa.Table.from_batches([batch]).select(self._view.columns.names)
            yield from some.cast(self._view.columns).to_batches()

    def _found(self, table: deltalake.DeltaTable, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows that are valid now and have one of these keys."""
        wanted = row_hashes(keys)
        for batch in self._rows(table, keys):
            there = np.isin(row_hashes(batch.select(keys.column_names)), wanted)
            if there.any():
                yield batch.filter(pa.array(there))

    @property
    def _what(self) -> str:
        return f"The Delta table {self._place.uri}"

    def _progress(self, table: deltalake.DeltaTable | None) -> Progress:
        if table is None:
            return Progress(self._version, None)
        number = table.version()
        if self._seen is None or self._seen[0] != number:
            self._seen = number, progress_of(table)
        found = self._seen[1]
        if self._version and found.version != self._version:
            raise StoreFenced(
                f"{self._what} was built by another process",
                hint="Another process builds the view. Stop one of them",
            )
        return found

    def _created(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable.create(
            self._place.uri, self._columns, storage_options=self._place.settings
        )

    def _merge(
        self, table: deltalake.DeltaTable, changes: Changes, recorded: CommitProperties
    ) -> None:
        before = table.version()
        if self._history:
            self._merge_history(table, changes, recorded)
        elif len(changes):
            taken = {_q(name): f"s.{_q(name)}" for name in self._view.columns.names}
            (
                self._merger(table, self._source(changes), self._same_key, recorded)
                .when_matched_delete(f"s.{_GONE}")
                .when_matched_update(taken, f"NOT s.{_GONE}")
                .when_not_matched_insert(taken, f"NOT s.{_GONE}")
                .execute()
            )
        if table.version() == before:
            # Nothing changed in the table, so the merge made no commit.
            table.create_write_transaction([], "append", table.schema(), commit_properties=recorded)

    def _merge_history(
        self, table: deltalake.DeltaTable, changes: Changes, recorded: CommitProperties
    ) -> None:
        """End the rows that have changed, and insert the new ones, each with its time."""
        if changes.steps is None:
            raise StoreError(
                f"{self._what} keeps a history, and got changes without their times",
                hint="Let headrace follow the view: hr.run, headrace run or headrace stores run",
            )
        touched = self._found(table, changes.steps.rows.select(list(self._view.key)))
        current = pa.Table.from_batches(touched, schema=self._view.columns)
        source = merged(changes.steps, current, self._view.key)
        if not source.num_rows:
            return
        taken = {_q(name): f"s.{_q(name)}" for name in self._columns.names}
        (
            self._merger(
                table, source, f"s.{CLOSES} AND t.{CURRENT} AND {self._same_key}", recorded
            )
            .when_matched_update({TO: f"s.{TO}", CURRENT: "false"})
            .when_not_matched_insert(taken, f"NOT s.{CLOSES}")
            .execute()
        )

    @property
    def _same_key(self) -> str:
        names = map(_q, self._view.key)
        return " AND ".join(f"(t.{name} IS NOT DISTINCT FROM s.{name})" for name in names)

    def _merger(
        self,
        table: deltalake.DeltaTable,
        source: pa.Table,
        same: str,
        recorded: CommitProperties,
    ) -> deltalake.table.TableMerger:
        return table.merge(
            source, same, source_alias="s", target_alias="t", commit_properties=recorded
        )

    def _source(self, changes: Changes) -> pa.Table:
        """The rows to keep and to delete, told apart by a column."""
        columns = self._view.columns
        gone = pa.Table.from_arrays(
            [
                changes.deleted.column(f.name).cast(f.type)
                if f.name in self._view.key
                else pa.nulls(changes.deleted.num_rows, f.type)
                for f in columns
            ],
            schema=pa.schema([f.with_nullable(True) for f in columns]),
        )
        kept = changes.rows.cast(gone.schema)
        both = pa.concat_tables([kept, gone])
        marks = [False] * kept.num_rows + [True] * gone.num_rows
        return both.append_column(_GONE, pa.array(marks, pa.bool_()))

    def _tidy(self, table: deltalake.DeltaTable, recorded: CommitProperties) -> None:
        """Compact small files now and then, and remove old ones. The changes are stored already."""
        if table.version() % _TIDY_EVERY:
            return
        try:
            with self._place.errors():
                table.optimize.compact(commit_properties=recorded)
                table.vacuum(
                    retention_hours=round(self._keep / timedelta(hours=1)),
                    dry_run=False,
                    enforce_retention_duration=False,
                    commit_properties=recorded,
                )
        except (StoreError, StoreUnavailable) as error:
            _log.warning("%s was not compacted, which is tried again later: %s", self._what, error)


def progress_of(table: deltalake.DeltaTable) -> Progress:
    """The version of the view that a table has, and how far it is."""
    note = note_of(table, _NOTE)
    if note is None:
        return Progress(None, None)
    found = json.loads(note)
    generation = found["generation"]
    offset = table.transaction_version(_transaction(generation))
    position = None if offset is None else StorePosition(generation, offset)
    return Progress(found["version"], position)


def replace(built: Place, live: Place) -> bool:
    """Let the rows of one table replace those of another, in one commit.

    Returns False if there is no finished one to take them from.
    """
    source = built.open()
    if source is None:
        return False
    made, now = progress_of(source), live.open()
    if made.position is None:
        return False
    if now is None or progress_of(now).version != made.version:
        deltalake.write_deltalake(
            live.uri,
            source.to_pyarrow_dataset().scanner(batch_size=_ROWS_AT_ONCE).to_reader(),
            mode="overwrite",
            schema_mode="overwrite",
            storage_options=live.settings,
            commit_properties=_recorded(made.position, made.version),
        )
    return True


def _recorded(position: StorePosition, version: str | None) -> CommitProperties:
    """The position as the table's own transaction. A commit in between makes this one fail."""
    note = {"generation": position.generation, "version": version}
    return CommitProperties(
        custom_metadata={_NOTE: json.dumps(note)},
        app_transactions=[Transaction(_transaction(position.generation), position.offset)],
        max_commit_retries=0,
    )


def _transaction(generation: str) -> str:
    return f"headrace:{generation}"


def _conditions(keys: pa.Table, columns: pa.Schema) -> Iterator[dataset.Expression]:
    """Conditions that Arrow checks while it reads: every row with one of these keys meets them."""
    for name in keys.column_names:
        kind = columns.field(name).type
        # To Arrow, 0.0 is not -0.0.
        if not pa.types.is_floating(kind) and not pa.types.is_nested(kind):
            yield dataset.field(name).isin(pc.unique(keys.column(name).cast(kind)))


def _q(name: str) -> str:
    """A name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'
