"""The outbox: output for topics of the log, stored with the results until it is sent.

A batch puts its output into the outbox in the transaction that stores its results. Each entry has
the sequence number under which it is appended to its topic, so sending it again after a crash adds
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pyarrow as pa

from headrace.clock import to_datetime
from headrace.errors import RecordTooLarge, TransactionTooLarge
from headrace.log import Capability, Log, Producer
from headrace.log.conform import row_sizes
from headrace.log.dead_letter import DEAD_LETTER
from headrace.log.settings import MAX_RECORD_BYTES
from headrace.log.split import ranges_of
from headrace.plan.crash_points import CrashPoint
from headrace.store.sqlite.database import Database

_ENTRY_BYTES = 8 << 20
"""The limit of an entry with several rows, and so of a commit in the log."""


def put(db: apsw.Connection, topic: str, rows: pa.Table) -> int:
    """Put rows into the outbox, in a transaction; return their number."""
    stored = 0
    for part in _parts(topic, rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
        sequence = db.execute("SELECT sequence FROM _headrace_outbox_end").get
        db.execute(
            "INSERT INTO _headrace_outbox VALUES (?, ?, ?)",
            (sequence, topic, memoryview(sink.getvalue())),
        )
        db.execute("UPDATE _headrace_outbox_end SET sequence = sequence + 1")
        stored += part.num_rows
    return stored


def _parts(topic: str, rows: pa.Table) -> Iterator[pa.Table]:
    for first, end in ranges_of(rows, _ENTRY_BYTES):
        part = rows.slice(first, end - first)
        yield part if end - first > 1 or part.nbytes <= MAX_RECORD_BYTES else _fitted(topic, part)


def _fitted(topic: str, row: pa.Table) -> pa.Table:
    """One row, if a record can hold it. A larger dead letter keeps its place, without its row."""
    size = max(int(row_sizes(batch).max()) for batch in row.to_batches())
    if size <= MAX_RECORD_BYTES:
        return row
    if not row.schema.equals(DEAD_LETTER):
        raise RecordTooLarge(
            f"A row for topic {topic!r} has {size:,} bytes, and no topic takes more than "
            f"{MAX_RECORD_BYTES:,} in one record",
            hint="Write fewer columns: hr.select(...)",
            topic=topic,
            size=size,
        )
    text = pa.array([f'{{"bytes_left_out": {size}}}'], pa.string())
    return row.set_column(DEAD_LETTER.get_field_index("row"), "row", text)


class Outbox:
    """Sends the entries of the outbox. The next transaction removes those that were sent."""

    def __init__(
        self, database: Database, log: Log, producer: Producer, crash_point: CrashPoint
    ) -> None:
        self._database = database
        self._log = log
        self._producer = producer
        self._crash_point = crash_point
        # Every sequence number that the log has of this producer was sent, even to a deleted topic.
        self._sent = producer.next_sequence - 1

    def forget_sent(self, db: apsw.Connection) -> None:
        """Remove the entries that were sent, in a transaction."""
        db.execute("DELETE FROM _headrace_outbox WHERE sequence <= ?", (self._sent,))

    def send(self) -> None:
        """Append all entries to their topics, in order."""
        while True:
            with self._database.reading() as db:
                rows = list(
                    db.execute(
                        "SELECT sequence, topic, data FROM _headrace_outbox WHERE sequence > ? "
                        "ORDER BY sequence LIMIT 1",
                        (self._sent,),
                    )
                )
                if not rows:
                    return
                ((sequence, topic, data),) = rows
                self._crash_point("before sending")
                table = pa.ipc.open_stream(data).read_all()
                try:
                    self._append(str(topic), table, int(sequence))
                except TransactionTooLarge:
                    if self._split(int(sequence)):
                        continue
                    raise
                self._sent = int(sequence)
                self._crash_point("sent")

    def advance(self, topic: str, moment: int) -> None:
        """Advance the frontier of a topic after its entries, if the log can."""
        if Capability.FRONTIERS in self._log.capabilities:
            self._log.advance(topic, to_datetime(moment), ahead=True)

    def _append(self, topic: str, rows: pa.Table, sequence: int) -> None:
        try:
            self._producer.append(topic, rows, sequence=sequence)
        except RecordTooLarge:
            # A stored entry cannot be made smaller, and all later ones wait for it.
            self._log.alter_topic(topic, settings={"max_record_bytes": MAX_RECORD_BYTES})
            self._producer.append(topic, rows, sequence=sequence)

    def _split(self, first: int) -> bool:
        """Split waiting entries that an earlier headrace made too large; True if any was."""
        with self._database.writing() as db:
            waiting = list(
                db.execute(
                    "SELECT topic, data FROM _headrace_outbox WHERE sequence >= ? "
                    "ORDER BY sequence",
                    (first,),
                )
            )
            db.execute("DELETE FROM _headrace_outbox WHERE sequence >= ?", (first,))
            db.execute("UPDATE _headrace_outbox_end SET sequence = ?", (first,))
            for topic, data in waiting:
                put(db, str(topic), pa.ipc.open_stream(data).read_all())
            end = db.execute("SELECT sequence FROM _headrace_outbox_end").get
        return int(end) > first + len(waiting)


class SilentOutbox(Outbox):
    """An outbox that sends nothing, and keeps its entries."""

    def __init__(self) -> None:
        pass

    def forget_sent(self, db: apsw.Connection) -> None:
        pass

    def send(self) -> None:
        pass
