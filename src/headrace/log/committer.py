"""Committers: what a producer and its transactions share to commit under one producer id."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import OutOfOrderSequence, ProducerFenced, UnknownTopic, UserError
from headrace.log.conform import conform
from headrace.log.declared import TopicRow, check_name
from headrace.log.pending import Rows, Taken
from headrace.log.positions import GroupOffsets
from headrace.log.record import Header
from headrace.log.roles import CommitPart, Flags
from headrace.log.split import Piece, Rotation, split, with_tombstones
from headrace.log.state import Receipt

Make = Callable[[], list[Piece]]
"""Makes the pieces of a commit; called again if a topic was altered meanwhile."""


class Committer(ABC):
    """Commits under one producer id, with consecutive sequence numbers."""

    def __init__(self, *, id: str | None) -> None:
        self._topics: dict[str, TopicRow] = {}
        self._rotation = Rotation(self.records_in)
        self.last_own = -1
        """The last sequence number that was chosen here, not by the caller."""
        self.lock = threading.RLock()
        """Held from choosing a sequence number until its commit is acknowledged."""
        self.id = f"anonymous-{uuid.uuid4()}" if id is None else check_name(id, "producer")

    # Implemented by each kind of log

    @property
    @abstractmethod
    def home(self) -> str:
        """An identifier of the log, equal to that of its consumers."""

    @property
    @abstractmethod
    def next_sequence(self) -> int:
        """The sequence number that the log expects next."""

    @property
    @abstractmethod
    def last_receipt(self) -> Receipt | None:
        """The receipt of the last commit under this id."""

    @abstractmethod
    def doubt(self) -> None:
        """Ask the log for the next sequence number: the last commit may have failed or not."""

    @abstractmethod
    def check_part(self, part: CommitPart) -> None:
        """Raise unless this log can commit such a part."""

    @abstractmethod
    def commit(
        self,
        make: Make,
        sequence: int,
        offsets: GroupOffsets | None = None,
        parts: Sequence[CommitPart] = (),
        *,
        whole: bool = False,
    ) -> Receipt:
        """Commit; a sequence number that the log already has adds nothing.

        With `whole`, readers must never see a part of it without the rest.
        """

    @abstractmethod
    def find_topic(self, name: str) -> TopicRow:
        """The current topic, from the log."""

    @abstractmethod
    def records_in(self, topic: TopicRow) -> int:
        """The approximate number of records that a topic has had."""

    def close(self) -> None:
        """Release what the log keeps open for this producer."""
        return

    # Common to all logs

    def commit_next(
        self,
        make: Make,
        offsets: GroupOffsets | None = None,
        parts: Sequence[CommitPart] = (),
        *,
        whole: bool = False,
    ) -> Receipt:
        """Commit under the next sequence number."""
        self.last_own = self.next_sequence
        try:
            return self.commit(make, self.last_own, offsets, parts, whole=whole)
        except BaseException:
            self.doubt()
            raise

    def topic(self, name: str) -> TopicRow:
        """The topic as this producer last saw it."""
        row = self._topics.get(name)
        if row is None:
            row = self._topics[name] = self.find_topic(name)
        return row

    def conformed(self, topic: str, data: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
        """Rows checked and converted to the topic's columns."""
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
        """Rows from `conformed`, split by partition."""
        row = self.topic(topic)
        pieces, done = [], 0
        for given in batches:
            # Columns may have been added to the topic since.
            for batch in [given] if given.schema == row.schema else conform(row.topic, given):
                flags = None if tombstones is None else tombstones[done : done + batch.num_rows]
                stored = with_tombstones(row, batch, flags)
                pieces += split(row, stored, partition, self._rotation)
                done += batch.num_rows
        return pieces

    def forget(self, topic: str) -> None:
        """Drop a topic from the cache."""
        self._topics.pop(topic, None)

    def look_again(self, known: TopicRow) -> TopicRow | None:
        """The current topic if it has changed, else None. No record is refused by an old schema."""
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
        """Add a record to the waiting ones, checked against the current topic."""
        new = self.look_again(rows.topic)
        if new is not None and (new.id == rows.topic.id or rows.empty):
            rows.topic = new
        return rows.add(value, key, headers, partition)

    def pieces_of(self, taken: Taken) -> list[Piece]:
        """Records sent to a topic, split by its current partitions."""
        topic = self.topic(taken.topic.name)
        if topic.id != taken.topic.id:
            raise UnknownTopic(
                f"Topic {topic.name!r} was deleted and created again, so records that were sent to "
                "the old one were not written",
                hint="Send them again if they belong in the new topic",
                topic=topic.name,
            )
        return taken.rows.pieces(taken.records, topic, self._rotation)


def fenced(producer: str) -> ProducerFenced:
    """The error for a producer that a newer one with the same id has fenced out."""
    return ProducerFenced(
        f"A newer producer {producer!r} has started",
        hint="Only one producer can write under an id; stop this one, or give it another id",
        producer=producer,
    )


def out_of_order(producer: str, sequence: int, expected: int) -> OutOfOrderSequence:
    """The error for a sequence number that skips others."""
    return OutOfOrderSequence(
        f"Producer {producer!r} sent sequence {sequence}, but {expected} is next",
        hint="A batch before this one is missing; send it first",
        expected=expected,
    )
