"""The first hop: a table in its database, and the topic of its captured changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.application.verify.hops import Cut, Hop, changed_between, last_writes, since
from headrace.application.verify.marks import Mark, differing_in
from headrace.application.verify.result import Write
from headrace.application.verify.sides import Side, TopicSide, conformed, ends_of, moved_keys
from headrace.cdc.contract import Row, Source, Table
from headrace.cdc.state import read_state
from headrace.cdc.topics import row_of, topic_of
from headrace.clock import SECOND, Clock
from headrace.errors import SourceError
from headrace.log import Log
from headrace.schema.row_hashes import Hashes

_CHUNK = 10_000
_LOOK = SECOND // 5
_PATIENCE = 15 * SECOND
"""The time that a capture may stand still: a quiet one writes its position every ten seconds."""


@dataclass(frozen=True)
class Captured:
    """The origin of a topic of changes: the prefix of the capture, and its source."""

    prefix: str
    name: str
    """The database, for people."""
    open: Callable[[], Source]
    again: Callable[[str, Clock], None]
    """Capture a table again: write the rows that differ."""


class SourceHop(Hop):
    """A table in its database, and the changes of it that were captured."""

    def __init__(self, log: Log, view: str, topic: str, captured: Captured, clock: Clock) -> None:
        self.one, self.other = f"table in {captured.name}", f"topic {topic}"
        self.view = view
        self.captured = captured
        self.table = ""
        self._log = log
        self._topic = topic
        self._clock = clock
        self._start: list[int] | None = None

    @contextlib.contextmanager
    def cut(self) -> Iterator[Cut]:
        before = ends_of(self._log, self._topic)
        with self.captured.open() as source:
            table = self._table(source)
            self.table = table.full_name
            columns, key = self._columns(table), table.key
            one = SourceSide(source, table, columns, key)

            def passed() -> list[int]:
                self._wait(source, one.high)
                return ends_of(self._log, self._topic)

            other = _LaterTopicSide(self._log, self._topic, self._start, passed, columns, key)
            keys = pa.schema([columns.field(name) for name in key])

            def moved() -> Hashes:
                return moved_keys(self._log, self._topic, before, passed(), keys)

            id = self._log.topic_ids([self._topic]).get(self._topic)
            yield Cut(one, other, self._log.head(), moved, {"id": id, "offsets": before})

    def changed_since(self, mark: Mark) -> pa.Table | None:
        if mark.get("id") != self._log.topic_ids([self._topic]).get(self._topic):
            return None
        with self.captured.open() as source:
            table = self._table(source)
            columns = self._columns(table)
        known = differing_in(mark, pa.schema([columns.field(name) for name in table.key]))
        if known is None:
            return None
        self._start = since(mark, known)
        stop = ends_of(self._log, self._topic)
        return changed_between(self._log, self._topic, mark["offsets"], stop, known)

    def last_writes(self, keys: pa.Table) -> dict[int, Write]:
        return last_writes(self._log, self._topic, keys)

    def _table(self, source: Source) -> Table:
        """The table that the topic is of, as it is now."""
        found = [t for t in source.tables() if topic_of(self.captured.prefix, t) == self._topic]
        if not found:
            raise SourceError(
                f"{self.captured.name} no longer has the table of topic {self._topic!r}",
                hint="headrace cdc status lists the captured tables",
            )
        return found[0]

    def _columns(self, table: Table) -> pa.Schema:
        """The columns of a table with the types that they have in the topic, which may be wider."""
        there = row_of(self._log.topic(self._topic).topic)
        kinds = {field.name: field.type for field in there}
        return pa.schema([(c.name, kinds.get(c.name, c.type)) for c in table.columns])

    def _wait(self, source: Source, high: str | None) -> None:
        """Wait until the capture has written all that the source showed."""
        last, until = "", 0
        while high is not None:
            reached = read_state(self._log, self.captured.prefix).reached.position
            if reached is not None and (
                source.passed(reached, high) or (not last and source.quiet_since(reached))
            ):
                return
            now = self._clock.monotonic()
            if reached != last:
                last, until = reached or "", now + _PATIENCE
            if now >= until:
                raise SourceError(
                    f"The capture {self.captured.prefix!r} has not written yet what "
                    f"{self.captured.name} shows, and stands still",
                    hint="headrace cdc run brings it up to date",
                )
            self._clock.sleep(_LOOK)


class SourceSide(Side):
    """The rows of a table, read in chunks. Each is a short transaction of its own."""

    def __init__(
        self, source: Source, table: Table, columns: pa.Schema, key: Sequence[str]
    ) -> None:
        super().__init__(columns, key)
        self._source = source
        self._table = table
        self.high: str | None = None
        """The position that the capture has to pass, to have written what was read last."""

    def rows(self) -> Iterator[pa.RecordBatch]:
        after: Row | None = None
        while True:
            chunk = self._source.chunk(self._table, after, _CHUNK)
            self.high, after = chunk.high, chunk.last
            if chunk.rows:
                yield self._made(chunk.rows)
            if after is None:
                return

    def find(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        for batch in keys.to_batches(_CHUNK):
            values = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            wanted = [row for row in self._source.rows(keys.schema, values) if row is not None]
            chunk = self._source.find(self._table, wanted)
            if chunk is None:
                yield from super().find(keys)
                return
            self.high = chunk.high
            if chunk.rows:
                yield self._made(chunk.rows)

    def _made(self, rows: Sequence[Row]) -> pa.RecordBatch:
        structs = self._source.columns(self._table.columns, rows)
        batch = pa.RecordBatch.from_struct_array(structs)
        return conformed(batch, self.columns, f"table {self._table.full_name}")


class _LaterTopicSide(TopicSide):
    """The rows that a topic makes as soon as its capture has passed what the source showed."""

    def __init__(
        self,
        log: Log,
        topic: str,
        start: Sequence[int] | None,
        passed: Callable[[], Sequence[int]],
        columns: pa.Schema,
        key: Sequence[str],
    ) -> None:
        super().__init__(log, topic, start, (), columns, key)
        self._passed = passed

    def rows(self) -> Iterator[pa.RecordBatch]:
        if not self._stop:
            self._stop = self._passed()
        yield from super().rows()
