"""Commits of producers on Kafka.

A producer with an id is transactional: each of its commits is a transaction that ends with its
fence. One without an id sends plain messages, and uses a transaction only for an atomic commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import OffsetSpec

from headrace.clock import SECOND
from headrace.errors import HeadraceError, LogError, LogUnavailable
from headrace.log.committer import Committer, Make, fenced, out_of_order
from headrace.log.declared import TopicRow
from headrace.log.interface import Capability, lacking
from headrace.log.kafka.client import HOME, Client
from headrace.log.kafka.failures import FENCED, code_of
from headrace.log.kafka.fences import Fence, fence_message, read_fence
from headrace.log.kafka.lookup import KafkaOffsets
from headrace.log.kafka.messages import Outgoing, outgoing
from headrace.log.kafka.sending import Sender, receipt_of
from headrace.log.kafka.topics import Topics, number_of
from headrace.log.positions import GroupOffsets
from headrace.log.roles import Acks, CommitPart
from headrace.log.state import Ack, Receipt

TRANSACTIONAL = "headrace."
"""The prefix of our producers' transactional ids."""

_ACKS = {"none": "1", "written": "1", "synced": "all"}
"""The replicas that must answer. With `none` only `flush` waits for the answer."""


class KafkaCommitter(Committer):
    """Commits to Kafka under one producer id."""

    def __init__(self, client: Client, topics: Topics, *, id: str | None, acks: Acks) -> None:
        super().__init__(id=id)
        self._client = client
        self._found = topics
        self._named = id is not None
        self._acks = acks
        self._plain: Sender | None = None
        self._transactional: Sender | None = None
        self._sequence = 0
        self._fence: Fence | None = None
        self._fenced = False
        self._in_doubt = False
        self._left: _Left | None = None
        if self._named:
            self._open()

    # Who this is

    @property
    def home(self) -> str:
        return HOME

    @property
    def next_sequence(self) -> int:
        if self._named and self._transactional is None:
            self._open()
        return self._sequence

    @property
    def last_receipt(self) -> Receipt | None:
        _ = self.next_sequence
        return None if self._fence is None else self._fence.receipt

    def doubt(self) -> None:
        # A failed commit was aborted; one with an unknown result has dropped its producer.
        return

    def _open(self) -> Sender:
        """Open a producer that owns this transactional id, and read its fence."""
        if self._fenced:
            raise fenced(self.id)
        millis = int(self._client.seconds * 1000)
        producer = self._client.transactional(
            f"{TRANSACTIONAL}{self.id}",
            transaction_timeout_ms=max(60_000, millis),
            message_timeout_ms=millis,
        )
        if self._named:
            self._fence = read_fence(self._client, self.id)
            self._sequence = 0 if self._fence is None else self._fence.sequence + 1
        self._transactional = Sender(self._client, producer)
        return self._transactional

    def close(self) -> None:
        with self.lock:
            for sender in (self._plain, self._transactional):
                if sender is not None:
                    sender.close()
            self._plain = self._transactional = None

    # Topics

    def find_topic(self, name: str) -> TopicRow:
        return self._found.find(name)

    def records_in(self, topic: TopicRow) -> int:
        places = [(topic.name, partition) for partition in range(topic.topic.partitions)]
        ends = self._client.offsets(places, OffsetSpec.latest())
        return sum(offset for offset, _ in ends.values())

    def _look_at_topics(self) -> None:
        """Forget cached topics that were deleted, recreated or given more partitions."""
        known = {name: self._topics[name] for name in list(self._topics)}
        found = self._found.described(known)
        for name, row in known.items():
            now = found.get(name)
            known_as = (row.id, row.topic.partitions)
            if now is None or (number_of(now), len(now.partitions)) != known_as:
                self.forget(name)

    # Committing

    def check_part(self, part: CommitPart) -> None:
        raise lacking(str(self._client.address), Capability.CONDITIONS)

    def commit(
        self,
        make: Make,
        sequence: int,
        offsets: GroupOffsets | None = None,
        parts: Sequence[CommitPart] = (),
        *,
        whole: bool = False,
    ) -> Receipt:
        if self._fenced:
            raise fenced(self.id)
        expected = self.next_sequence
        if sequence > expected:
            raise out_of_order(self.id, sequence, expected)
        if sequence < expected:
            return self._again(sequence)
        self._look_at_topics()
        messages = [message for piece in make() for message in outgoing(piece)]
        if self._named or whole:
            return self._transact(messages, sequence, offsets)
        if self._left is not None and self._left.is_of(messages):
            return self._send_plainly(sequence, self._left)
        return self._send_plainly(sequence, _Left(messages, messages))

    def _again(self, sequence: int) -> Receipt:
        """The receipt of an earlier commit; raises if another producer has taken the id."""
        if self._named:
            assert self._fence is not None
            self._transact([], self._fence.sequence, None, again=self._fence)
        if self._fence is not None and self._fence.sequence == sequence:
            receipt = self._fence.receipt
            return Receipt(None, receipt.timestamp, receipt.acks, duplicate=True)
        return Receipt(None, 0, (), duplicate=True)

    def _send_plainly(self, sequence: int, left: _Left) -> Receipt:
        """Send without a transaction. After an error, only the failed messages are sent again."""
        if self._plain is None:
            acks = _ACKS[self._acks]
            producer = self._client.producer(
                acks=acks,
                enable_idempotence=acks == "all",
                max_in_flight=5 if acks == "all" else 1,
                message_timeout_ms=int(self._client.seconds * 1000),
            )
            self._plain = Sender(self._client, producer)
        sent = self._plain.send(left.messages)
        self._left = None
        receipt = receipt_of(left.messages, sent, left.acks, left.timestamp)
        if sent.errors:
            number, error = min(sent.errors.items())
            found = self._client.failure(error, topic=left.messages[number].topic)
            if isinstance(found, LogUnavailable):
                again = [left.messages[index] for index in sorted(sent.errors)]
                self._left = _Left(left.whole, again, receipt.acks, receipt.timestamp)
            raise found
        return self._done(sequence, receipt)

    def _done(self, sequence: int, receipt: Receipt) -> Receipt:
        self._sequence = sequence + 1
        self._fence = Fence(sequence, receipt)
        return receipt

    def _transact(
        self,
        messages: Sequence[Outgoing],
        sequence: int,
        offsets: GroupOffsets | None,
        again: Fence | None = None,
    ) -> Receipt:
        sender = self._transactional or self._open()
        producer = sender.producer
        try:
            producer.begin_transaction()
            sent = sender.send(messages)
            receipt = receipt_of(messages, sent)
            failed = {index: messages[index].topic for index in sent.errors}
            if self._named and not sent.errors:
                fence = again or Fence(sequence, receipt)
                sent = sender.send([fence_message(self.id, fence)])
                failed = {0: ""} if sent.errors else {}
            if sent.errors:
                number, error = min(sent.errors.items())
                raise _Refused(error, failed[number])
            if offsets is not None:
                assert isinstance(offsets, KafkaOffsets)
                producer.send_offsets_to_transaction(
                    list(offsets.partitions), offsets.member, self._client.seconds
                )
        except (KafkaException, _Refused) as error:
            raise self._aborted(producer, error) from None
        except BaseException:
            self._abort(producer)
            raise
        self._end(producer)
        self._await_visible(receipt)
        return receipt if again else self._done(sequence, receipt)

    def _await_visible(self, receipt: Receipt) -> None:
        """Wait until readers see the commit: Kafka answers before it has marked the records.

        Give up after a second, because another open transaction may hide it for much longer.
        """
        ends = {(ack.topic, ack.partition): ack.end for ack in receipt.acks}
        limit = self._client.clock.monotonic() + SECOND
        while ends and self._client.clock.monotonic() < limit:
            seen = self._client.some_offsets(ends, OffsetSpec.latest())
            ends = {
                place: end
                for place, end in ends.items()
                if isinstance(found := seen[place], tuple) and found[0] < end
            }

    def _end(self, producer: Producer) -> None:
        """Commit the transaction, and retry transient errors until the timeout."""
        end = self._client.clock.monotonic() + int(self._client.seconds * SECOND)
        while True:
            try:
                producer.commit_transaction(self._client.seconds)
                return
            except KafkaException as error:
                inner: Any = error.args[0]
                if inner.txn_requires_abort() or inner.fatal():
                    raise self._aborted(producer, error) from None
                if not inner.retriable() or self._client.clock.monotonic() > end:
                    # The next producer with this id reads the result from the fence.
                    self._transactional, self._in_doubt = None, True
                    raise self._client.failure(error) from None

    def commit_next(
        self,
        make: Make,
        offsets: GroupOffsets | None = None,
        parts: Sequence[CommitPart] = (),
        *,
        whole: bool = False,
    ) -> Receipt:
        self._in_doubt = False
        try:
            return super().commit_next(make, offsets, parts, whole=whole)
        except LogUnavailable as error:
            if not self._in_doubt:
                raise
            # A retry would have another sequence number, and could write the records twice.
            raise LogError(
                f"The transaction may or may not be in the log: {error.message}",
                hint="Check the log before you retry. With a producer id, append(sequence=...) can "
                "be retried without checking",
            ) from None

    def _aborted(self, producer: Producer, error: KafkaException | _Refused) -> HeadraceError:
        """Abort, and return the cause as a headrace error."""
        ended = self._abort(producer)
        cause = error.error if isinstance(error, _Refused) else error
        if code_of(cause) in FENCED or ended in FENCED:
            self._fenced, self._transactional = self._named, None
            return fenced(self.id)
        topic = error.topic or None if isinstance(error, _Refused) else None
        return self._client.failure(cause, topic=topic)

    def _abort(self, producer: Producer) -> int:
        """Abort the transaction; return Kafka's error code if that fails, else 0."""
        try:
            producer.abort_transaction(self._client.seconds)
        except KafkaException as error:
            producer.purge()
            self._transactional = None
            return code_of(error)
        return 0


@dataclass(frozen=True)
class _Left:
    """The unsent messages of a commit, and the acknowledgements of the others."""

    whole: Sequence[Outgoing]
    messages: Sequence[Outgoing]
    acks: Sequence[Ack] = ()
    timestamp: int = 0

    def is_of(self, messages: Sequence[Outgoing]) -> bool:
        """True if these messages are a retry of this commit.

        Partitions are not compared: rows without a key may get others this time.
        """
        return _contents(messages) == _contents(self.whole)


def _contents(messages: Sequence[Outgoing]) -> Counter[tuple[Any, ...]]:
    return Counter((m.topic, m.key, m.value, tuple(m.headers or ())) for m in messages)


class _Refused(Exception):
    """A message that Kafka rejected."""

    def __init__(self, error: KafkaError, topic: str) -> None:
        super().__init__(error)
        self.error = error
        self.topic = topic
