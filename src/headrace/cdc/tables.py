"""The tables of a capture, each with its topic and what the topic shows of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.cdc.contract import Source, Table
from headrace.cdc.row_copy import RowCopy
from headrace.cdc.state import (
    CaptureState,
    Notice,
    NoticeKind,
    Snapshot,
    SnapshotKind,
    TableState,
)
from headrace.cdc.topics import check_names, ensure_topic
from headrace.errors import SourceError
from headrace.log import Log, Topic
from headrace.log.declared import topic_schema
from headrace.schema.ddl import format_schema, format_type


@dataclass
class Captured:
    """A captured table as it is now."""

    table: Table
    topic: Topic
    state: TableState

    @property
    def seen(self) -> int:
        """The number of its last snapshot, which rows that are written now count as seen by."""
        return 0 if self.state.snapshot is None else self.state.snapshot.generation

    @property
    def running(self) -> Snapshot | None:
        """Its snapshot, if it is not complete."""
        snapshot = self.state.snapshot
        return None if snapshot is None or snapshot.complete else snapshot


class CapturedTables:
    """The tables by name. What changes is noted, and written with the next commit.

    A table is as the source shows it now. The stream may still have changes of an older version.
    """

    def __init__(
        self,
        source: Source,
        log: Log,
        prefix: str,
        copy: RowCopy,
        state: CaptureState,
        *,
        partitions: int,
        snapshots: bool,
    ) -> None:
        self._source = source
        self._log = log
        self._prefix = prefix
        self._copy = copy
        self._partitions = partitions
        self._snapshots = snapshots
        self._states = dict(state.tables)
        self._versions: dict[int, tuple[Table, Captured]] = {}
        self._changed: dict[str, TableState] = {}
        self._notices: list[Notice] = []
        self._number = max((notice.number for notice in state.notices), default=0)
        self._gone: dict[str, Captured] = {}
        self.by_name: dict[str, Captured] = {}
        """The tables that are there now."""

    def look(self) -> None:
        """Look at the tables of the source.

        A new one, or one whose topic was made anew, gets a snapshot, and one with other columns is
        compared, if the capture makes snapshots.
        """
        tables = self._source.tables()
        check_names(self._prefix, tables)
        for table in tables:
            self._gone.pop(table.full_name, None)
            self.by_name[table.full_name] = self._adopt(table)
        for name in self.by_name.keys() - {table.full_name for table in tables}:
            self._gone[name] = self.by_name.pop(name)
            text = f"{name}: dropped or renamed; its topic stays as it is"
            self.notice("schema", text, name)

    def of(self, table: Table) -> Captured:
        """The captured table that a change is of. Its topic has all columns of the change."""
        known = self._versions.get(id(table))
        if known is not None and known[0] is table:
            return known[1]
        here = self.by_name.get(table.full_name)
        if here is None or here.table != table:
            self.look()
            here = self.by_name.get(table.full_name) or self._gone.get(table.full_name)
            if here is None:
                here = self._gone[table.full_name] = self._adopt(table)
            if here.table != table:
                here.topic = ensure_topic(self._log, self._prefix, table, self._partitions)
        self._versions[id(table)] = (table, here)
        return here

    def _adopt(self, table: Table) -> Captured:
        here = self.by_name.get(table.full_name)
        if here is not None and here.table == table:
            here.table = table
            return here
        before = self._states.get(table.full_name)
        if before is not None and before.key != table.key and self._is_there(before):
            raise _other_key(table, before)
        topic = ensure_topic(self._log, self._prefix, table, self._partitions)
        topic_id = self._log.topic_ids([topic.name])[topic.name]
        columns = format_schema(table.columns)
        state = TableState(table.full_name, topic.name, topic_id, columns, table.key)
        kind: SnapshotKind | None = None
        if before is None or before.topic_id != topic_id:
            kind = "initial"
        else:
            state = replace(state, snapshot=before.snapshot)
            if columns != before.columns:
                kind = "heal"
                text = _difference(before.columns, columns)
                self.notice("schema", f"{table.full_name}: {text}", table.full_name)
        if here is None:
            here = Captured(table, topic, state)
        here.table, here.topic, here.state = table, topic, state
        self._copy.add(topic.name, topic_id, table.columns)
        if state != before:
            self.change(here, state)
        if kind is not None and self._snapshots:
            self.snapshot(here, kind, doubt=kind == "heal")
        return here

    def _is_there(self, state: TableState) -> bool:
        """True if the topic of a table is the one that the capture has written to."""
        return self._log.topic_ids([state.topic]).get(state.topic) == state.topic_id

    def snapshot(
        self, captured: Captured, kind: SnapshotKind | None = None, *, doubt: bool = False
    ) -> None:
        """Begin the snapshot of a table. One that runs begins again, as what it was.

        With `doubt` the copies of its rows may be out of date.
        """
        running, number = captured.running, captured.seen + 1
        if running is not None and (kind is None or running.kind == "initial"):
            kind = running.kind
        doubt = doubt or (running is not None and running.doubt > 0)
        snapshot = Snapshot(number, kind or "incremental", doubt=number if doubt else 0)
        self.change(captured, replace(captured.state, snapshot=snapshot))

    def resume(self, captured: Captured) -> None:
        """Let a snapshot go on where its copy is, which a crash may have left behind the log.

        It begins again if the copy was lost: then it is not known which rows it has seen.
        """
        running = captured.running
        copied = self._copy.snapshot(captured.topic.name)
        if running is None or copied == running.to_text():
            return
        known = None if copied is None else Snapshot.from_text(copied)
        if known is None or known.generation != running.generation:
            self.snapshot(captured)
        else:
            self.change(captured, replace(captured.state, snapshot=known))

    def change(self, captured: Captured, state: TableState) -> None:
        """Note the new state of a table."""
        captured.state = self._states[state.name] = self._changed[state.name] = state

    def notice(self, kind: NoticeKind, text: str, table: str | None = None) -> None:
        """Note an event, for people."""
        self._number += 1
        self._notices.append(Notice(kind, text, table, self._number))

    def take_changed(self) -> tuple[list[TableState], list[Notice]]:
        """The changes since the last commit."""
        taken = list(self._changed.values()), list(self._notices)
        self._changed.clear()
        self._notices.clear()
        return taken

    @property
    def has_changed(self) -> bool:
        return bool(self._changed or self._notices)


def _other_key(table: Table, before: TableState) -> SourceError:
    return SourceError(
        f"The primary key of table {table.full_name} was ({', '.join(before.key)}) and is now "
        f"({', '.join(table.key)}), so its rows have other keys in topic {before.topic!r}",
        hint=f"Delete the topic {before.topic!r} and run the capture again, which writes the whole "
        "table anew; or capture it under another prefix",
        table=table.full_name,
    )


def _difference(before: str, after: str) -> str:
    """The columns that came, went or have another type, in words."""
    old, new = _types(before), _types(after)
    said = [
        *(f"added {name} {kind}" for name, kind in new.items() if name not in old),
        *(f"dropped {name} {kind}" for name, kind in old.items() if name not in new),
        *(
            f"changed {name} from {old[name]} to {kind}"
            for name, kind in new.items()
            if name in old and old[name] != kind
        ),
    ]
    return "; ".join(said) or "reordered columns"


def _types(columns: str) -> dict[str, str]:
    return {column.name: format_type(column.type) for column in topic_schema(columns)}
