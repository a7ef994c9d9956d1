"""What a producer and its transactions share: who they are to the log, and how they commit."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import OutOfOrderSequence, ProducerFenced, UnknownTopic, UserError
from headrace.log.conform import conform
from headrace.log.declared import TopicRow
from headrace.log.group_offsets import GroupOffsets
from headrace.log.names import check_name
from headrace.log.pending import Rows, Taken
from headrace.log.record import Header
from headrace.log.roles import Flags
from headrace.log.split import Piece, Rotation, split, with_tombstones
from headrace.log.state import Receipt

Make = Callable[[], list[Piece]]
"""Makes the pieces of a commit ready, and again if a topic was altered meanwhile."""


class Committer(ABC):
    """Commits under one producer id, one sequence number after the other."""

    def __init__(self, *, id: str | None) -> None:
        self._topics: dict[str, TopicRow] = {}
        self._rotation = Rotation(self.records_in)
        self.last_own = -1
        """The last number that a commit of this handle took from here, not from its caller."""
        self.lock = threading.RLock()
        """Held from choosing a sequence number until its commit is known to be in."""
        self.id = f"anonymous-{uuid.uuid4()}" if id is None else check_name(id, "producer")

    # What each kind of log does in its own way

    @property
    @abstractmethod
    def home(self) -> str:
        """The log that this commits to; a consumer of the same log has the same."""

    @property
    @abstractmethod
    def next_sequence(self) -> int:
        """The number that the log expects next."""

    @property
    @abstractmethod
    def last_receipt(self) -> Receipt | None:
        """The receipt of the last commit under this id."""

    @abstractmethod
    def doubt(self) -> None:
        """Ask the log for the next sequence number: whether the last got in is not known."""

    @abstractmethod
    def commit(
        self,
        make: Make,
        sequence: int,
        offsets: GroupOffsets | None = None,
        *,
        whole: bool = False,
    ) -> Receipt:
        """Commit; under a sequence number that the log has already, nothing is added.

        `whole` says that a part of it must never be seen without the rest.
        """

    @abstractmethod
    def find_topic(self, name: str) -> TopicRow:
        """The topic as the log has it now."""

    @abstractmethod
    def records_in(self, topic: TopicRow) -> int:
        """About how many records a topic has had."""

    def close(self) -> None:
        """Let go of what the log keeps open for this producer."""
        return

    # What they have in common

    def commit_next(
        self, make: Make, offsets: GroupOffsets | None = None, *, whole: bool = False
    ) -> Receipt:
        """Commit under the next sequence number."""
        self.last_own = self.next_sequence
        try:
            return self.commit(make, self.last_own, offsets, whole=whole)
        except BaseException:
            self.doubt()
            raise

    def topic(self, name: str) -> TopicRow:
        """The topic as it was when this producer last looked."""
        row = self._topics.get(name)
        if row is None:
            row = self._topics[name] = self.find_topic(name)
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


def fenced(producer: str) -> ProducerFenced:
    """The error for a producer that a newer one has taken over from."""
    return ProducerFenced(
        f"A newer producer {producer!r} has started",
        hint="Only one producer with an id can write; stop this one",
        producer=producer,
    )


def out_of_order(producer: str, sequence: int, expected: int) -> OutOfOrderSequence:
    """The error for a sequence number that leaves out another."""
    return OutOfOrderSequence(
        f"Producer {producer!r} sent sequence {sequence}, and {expected} is next",
        hint="A batch before this one is missing; send it first",
        expected=expected,
    )
