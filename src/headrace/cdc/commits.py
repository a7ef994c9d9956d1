"""Commits of a capture: changes, the position after them and the states of tables, in one.

The log is written first, and then the copy of rows, which catches up with the log after a crash.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headrace.cdc.changes import Bucket, Resolver, Written, WrittenPage
from headrace.cdc.contract import Source
from headrace.cdc.encoding import Encoded, Stamp, encode
from headrace.cdc.outbox import Router
from headrace.cdc.row_copy import RowCopy, TableChanges
from headrace.cdc.state import Reached, write_state
from headrace.cdc.tables import CapturedTables
from headrace.clock import Clock
from headrace.log import Producer


@dataclass(frozen=True)
class Prepared:
    """All that a commit adds to the log and to the copy."""

    encoded: list[Encoded]
    changes: dict[str, TableChanges]
    written: list[Written]

    @property
    def bytes(self) -> int:
        return sum(one.rows.nbytes for one in self.encoded)


class Commits:
    """The writer of one capture. Its marks tell each commit from any other."""

    def __init__(
        self,
        source: Source,
        prefix: str,
        producer: Producer,
        copy: RowCopy,
        tables: CapturedTables,
        resolver: Resolver,
        router: Router | None,
        clock: Clock,
        crash_point: Callable[[str], None],
    ) -> None:
        self._source = source
        self._prefix = prefix
        self._producer = producer
        self._copy = copy
        self._tables = tables
        self._resolver = resolver
        self._router = router
        self._clock = clock
        self._crash_point = crash_point
        self._run = uuid.uuid4().hex[:12]
        self._count = 0

    def prepare(self, buckets: Sequence[Bucket], stamps: Sequence[Stamp]) -> Prepared:
        """Prepare changes of the stream, by table."""
        changes: dict[str, TableChanges] = {}
        all_written = []
        for bucket in buckets:
            captured = self._tables.of(bucket.table)
            puts = changes.setdefault(captured.topic.name, TableChanges(captured.seen))
            resolved = self._resolver.resolve(captured, bucket, puts)
            all_written.append(resolved)
            if resolved.missed:
                self._tables.snapshot(captured)
        self._crash_point("resolved")
        return self.encoded(all_written, changes, stamps)

    def encoded(
        self,
        all_written: Sequence[Written | WrittenPage],
        changes: dict[str, TableChanges],
        stamps: Sequence[Stamp],
    ) -> Prepared:
        """Prepare rows that are complete, in envelopes and on their routes."""
        now = self._clock.now()
        encoded = [
            encode(self._source, self._prefix, topic, written, stamps, now)
            for written in all_written
            if len(written.keys)
            for topic in (self._tables.of(written.table).topic,)
        ]
        if self._router is not None:
            for written in all_written:
                encoded += self._router.route(self._source, written)
        self._crash_point("encoded")
        one_by_one = [written for written in all_written if isinstance(written, Written)]
        return Prepared(encoded, changes, one_by_one)

    def write(self, prepared: Prepared, reached: Reached, *, after: str) -> Reached:
        """Write a commit after the one with a mark. Returns what is reached then."""
        self._count += 1
        now = self._clock.now()
        reached = replace(reached, mark=f"{self._run}:{self._count}", time=now)
        tables, notices = self._tables.take_changed()
        notices = [replace(n, position=reached.position, time=now) for n in notices]
        transaction = self._producer.transaction()
        for one in prepared.encoded:
            transaction.append(one.topic, one.rows, tombstones=one.tombstones)
        write_state(transaction, self._prefix, reached, tables, notices)
        if any(table.snapshot is not None and not table.snapshot.read for table in tables):
            # What a power cut takes back of the copy would count as seen by the new snapshot.
            self._copy.sync()
        receipt = transaction.commit()
        assert receipt is not None
        self._crash_point("committed")
        ends = [(ack.topic, ack.partition, ack.end) for ack in receipt.acks]
        snapshots = {
            table.topic: table.snapshot.to_text() for table in tables if table.snapshot is not None
        }
        self._copy.commit(
            reached.mark, ends, prepared.changes, after=after or None, snapshots=snapshots
        )
        self._crash_point("copied")
        return reached
