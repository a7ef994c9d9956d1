"""What a producer and its transactions share: who they are to the log, and how they commit."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import UnknownTopic, UserError
from headrace.log.conform import conform
from headrace.log.file.appender import Appender, Piece, StaleTopic
from headrace.log.file.catalog import Catalog, one
from headrace.log.file.identity import ANONYMOUS, Identity, already
from headrace.log.file.offsets import GroupOffsets
from headrace.log.file.pending import Rows, Taken
from headrace.log.file.split import Rotation, split, with_tombstones
from headrace.log.file.topics import TopicRow, find_topic
from headrace.log.names import check_name
from headrace.log.record import Header
from headrace.log.roles import Flags
from headrace.log.state import Receipt

Make = Callable[[], list[Piece]]
"""Makes the pieces of a commit ready, and again if a topic was altered meanwhile."""


class Committer:
    """Commits under one producer id, one sequence number after the other."""

    def __init__(
        self,
        catalog: Catalog,
        appender: Appender,
        after_roll: Callable[[set[int]], None],
        *,
        id: str | None,
        synced: bool,
    ) -> None:
        self._catalog = catalog
        self._appender = appender
        self._after_roll = after_roll
        self._synced = synced
        self._topics: dict[str, TopicRow] = {}
        self._rotation = Rotation(self._records_in)
        self._epoch = 0
        self._sequence: int | None = 0
        self.last_own = -1
        """The last number that a commit of this handle took from here, not from its caller."""
        self.lock = threading.RLock()
        """Held from choosing a sequence number until its commit is known to be in."""
        self.id = f"{ANONYMOUS}{uuid.uuid4()}" if id is None else check_name(id, "producer")
        if id is not None:
            self._register()

    @property
    def next_sequence(self) -> int:
        """The number that the log expects next."""
        if self._sequence is None:
            known = one(
                self._catalog.reader(), "SELECT sequence FROM producer WHERE id = ?", self.id
            )
            self._sequence = 0 if known is None else known[0] + 1
        return self._sequence

    @property
    def last_receipt(self) -> Receipt | None:
        """The receipt of the last commit under this id."""
        with self._catalog.reading() as db:
            receipt = already(db, Identity(self.id, self._epoch, self.next_sequence - 1))
        return None if receipt is None or receipt.commit is None else receipt

    def doubt(self) -> None:
        """Ask the log for the next sequence number: whether the last got in is not known."""
        self._sequence = None

    def commit(self, make: Make, sequence: int, offsets: GroupOffsets | None = None) -> Receipt:
        """Commit; under a sequence number that the log has already, nothing is added."""
        identity = Identity(self.id, self._epoch, sequence)
        while True:
            try:
                receipt, closed = self._appender.commit(
                    make(), synced=self._synced, identity=identity, offsets=offsets
                )
                break
            except StaleTopic as stale:
                self.forget(stale.topic.name)
        self._sequence = max(sequence + 1, self._sequence or 0)
        if closed:
            self._after_roll(closed)
        return receipt

    def commit_next(self, make: Make, offsets: GroupOffsets | None = None) -> Receipt:
        """Commit under the next sequence number."""
        self.last_own = self.next_sequence
        try:
            return self.commit(make, self.last_own, offsets)
        except BaseException:
            self.doubt()
            raise

    def topic(self, name: str) -> TopicRow:
        """The topic as it was when this producer last looked."""
        row = self._topics.get(name)
        if row is None:
            row = self._topics[name] = find_topic(self._catalog.reader(), name)
        return row

    def conformed(self, topic: str, data: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
        """Foreign rows, checked, in the topic's own columns."""
        row = self.topic(topic)
        try:
            return conform(row.topic, data)
        except UserError:
            if (new := self.look_again(row)) is None:
                raise
            return conform(new.topic, data)

    def pieces(
        self,
        topic: str,
        batches: list[pa.RecordBatch],
        partition: int | None,
        tombstones: Flags | None = None,
    ) -> list[Piece]:
        """Rows that were `conformed`, sorted into partitions."""
        row = self.topic(topic)
        pieces, done = [], 0
        for given in batches:
            # The topic may have gained columns since.
            for batch in [given] if given.schema == row.schema else conform(row.topic, given):
                flags = None if tombstones is None else tombstones[done : done + batch.num_rows]
                stored = with_tombstones(row, batch, flags)
                pieces += split(row, stored, partition, self._rotation)
                done += batch.num_rows
        return pieces

    def forget(self, topic: str) -> None:
        """Look a topic up anew when it is next asked for."""
        self._topics.pop(topic, None)

    def look_again(self, known: TopicRow) -> TopicRow | None:
        """The topic as it is now, if it has changed; it refuses nothing for what it once was."""
        self.forget(known.name)
        new = self.topic(known.name)
        return None if (new.id, new.version) == (known.id, known.version) else new

    def add(
        self,
        rows: Rows,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: int | None,
    ) -> int:
        """Add a record to those that wait, after its topic may have changed."""
        new = self.look_again(rows.topic)
        if new is not None and (new.id == rows.topic.id or rows.empty):
            rows.topic = new
        return rows.add(value, key, headers, partition)

    def pieces_of(self, taken: Taken) -> list[Piece]:
        """Records that were sent to a topic, sorted into the partitions it has now."""
        topic = self.topic(taken.topic.name)
        if topic.id != taken.topic.id:
            raise UnknownTopic(
                f"Topic {topic.name!r} was deleted and made again since this producer last looked, "
                "and the records it had for the old one were not written",
                hint="Send them again if the new topic should have them",
                topic=topic.name,
            )
        return taken.rows.pieces(taken.records, topic, self._rotation)

    def _records_in(self, topic: TopicRow) -> int:
        found = one(
            self._catalog.reader(), "SELECT sum(end) FROM partition WHERE topic = ?", topic.id
        )
        return int(found[0] or 0) if found else 0

    def _register(self) -> None:
        """Take the id over from whoever had it."""
        with self._catalog.writing(synced=True) as db:
            db.execute(
                "INSERT INTO producer VALUES (?, 1, -1, NULL, 0) "
                "ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1",
                (self.id,),
            )
            known = one(db, "SELECT epoch, sequence FROM producer WHERE id = ?", self.id)
        assert known is not None
        self._epoch, self._sequence = known[0], known[1] + 1
