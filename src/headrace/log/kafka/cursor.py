"""A reader's position in one Kafka partition."""

from __future__ import annotations

from collections import deque
from itertools import islice

from confluent_kafka import Message

from headrace.errors import UnreadableRecord
from headrace.log.declared import TopicRow
from headrace.log.kafka.messages import Again, batch_of, fitting
from headrace.log.record import Batch


class KafkaCursor:
    """A buffer of the messages fetched from a partition, handed out in batches of any size."""

    def __init__(self, topic: TopicRow, partition: int, position: int, again: Again) -> None:
        self.topic = topic
        self.partition = partition
        self.position = position
        self.fetched = position
        """The next offset to fetch."""
        self.sought = False
        """True if Kafka's client still has to seek to `fetched`."""
        self.paused = False
        """True if Kafka's client has paused the partition."""
        self.waiting: deque[Message] = deque()
        self._again = again

    def seek(self, position: int) -> None:
        self.position = self.fetched = position
        self.waiting.clear()
        self.sought = True

    def put(self, message: Message) -> None:
        """Add a fetched message, unless it was fetched before a seek."""
        offset = message.offset() or 0
        if not self.sought and offset >= self.fetched:
            self.waiting.append(message)
            self.fetched = offset + 1

    def crash_point(self, offset: int) -> None:
        """Record that the partition has nothing more before this offset."""
        if not self.sought:
            self.fetched = max(self.fetched, offset)
            if not self.waiting:
                self.position = max(self.position, self.fetched)

    def take(self, rows: int) -> Batch | None:
        some = list(islice(self.waiting, rows))
        some = some[: fitting(some)]
        if not some:
            return None
        try:
            batch = batch_of(self.topic, some, again=self._look_again)
        except UnreadableRecord as error:
            # Return the records before it; the next call raises the error.
            some = [m for m in some if (m.offset() or 0) < error.details["offset"]]
            if not some:
                raise
            batch = batch_of(self.topic, some, again=self._look_again)
        for _ in some:
            self.waiting.popleft()
        self.position = int(batch.offsets[-1]) + 1 if self.waiting else self.fetched
        return batch

    def _look_again(self, odd: set[str]) -> TopicRow | None:
        new = self._again(odd)
        if new is not None:
            self.topic = new
        return new
