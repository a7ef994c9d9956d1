"""What has to be written to topics of the log, kept with the results until it is there.

A batch puts its output into the outbox in the transaction that stores its results. Each entry has
the sequence number under which it is then appended to its topic, so that sending it again after a
crash adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pyarrow as pa

from headrace.engine.crash import Reach
from headrace.log import Producer
from headrace.views.database import Database

_ENTRY_BYTES = 8 << 20
"""About what one entry, and so one commit of the log, may hold."""


def put(db: apsw.Connection, topic: str, rows: pa.Table) -> int:
    """Put rows into the outbox, in a transaction; returns how many are in it now."""
    stored = 0
    for part in _parts(rows):
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


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    per_part = max(1, rows.num_rows * _ENTRY_BYTES // max(1, rows.nbytes))
    for first in range(0, rows.num_rows, per_part):
        yield rows.slice(first, per_part)


class Outbox:
    """Sends what is in the outbox. What is sent goes with the next transaction."""

    def __init__(self, database: Database, producer: Producer, reach: Reach) -> None:
        self._database = database
        self._producer = producer
        self._reach = reach
        # What the log has under this producer's name was sent, whatever has become of its topic.
        self._sent = producer.next_sequence - 1

    def forget_sent(self, db: apsw.Connection) -> None:
        """Remove what is in the log, in a transaction."""
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
                self._reach("before sending")
                table = pa.ipc.open_stream(data).read_all()
                self._producer.append(str(topic), table, sequence=int(sequence))
                self._sent = int(sequence)
                self._reach("sent")
