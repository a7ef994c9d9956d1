"""Sending messages, with the result of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.log.kafka.client import Client
from headrace.log.kafka.messages import Outgoing
from headrace.log.state import Ack, Receipt


@dataclass
class Sent:
    """The results of messages, by index."""

    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Offset and timestamp of each delivered message."""
    errors: dict[int, KafkaError] = field(default_factory=dict)


class Sender:
    """One of Kafka's producers."""

    def __init__(self, client: Client, producer: Producer) -> None:
        self._client = client
        self._known: dict[str, int] = {}
        self.producer = producer

    def close(self) -> None:
        """Drop messages in flight."""
        self.producer.purge()

    def send(self, messages: Sequence[Outgoing]) -> Sent:
        """Send messages, and wait for the result of each."""
        sent = Sent()
        self._introduce(messages)

        def tell(number: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                sent.errors[number] = error
            else:
                sent.offsets[number] = (message.offset() or 0, message.timestamp()[1])

        for index, out in enumerate(messages):
            while True:
                try:
                    self.producer.produce(
                        out.topic,
                        out.value,
                        out.key,
                        partition=out.partition,
                        headers=out.headers,
                        on_delivery=partial(tell, index),
                    )
                    break
                except BufferError:
                    self.producer.poll(0.1)  # the queue is full: wait for some deliveries
                except KafkaException as error:
                    sent.errors[index] = error.args[0]
                    break
        # Every message has a timeout, so this loop ends.
        while self._waiting():
            continue
        return sent

    def _waiting(self) -> int:
        """Wait a while, and return the number of messages without a result."""
        try:
            left: int = self.producer.flush(self._client.seconds)
        except SystemError:
            # Kafka's client raises this if it is fenced while it waits. It can be called again.
            left = len(self.producer)
        return left

    def _introduce(self, messages: Sequence[Outgoing]) -> None:
        """Make Kafka's client look up partitions that it may not know yet."""
        highest: dict[str, int] = {}
        for message in messages:
            highest[message.topic] = max(highest.get(message.topic, 0), message.partition)
        for topic, partition in highest.items():
            if self._known.get(topic, -1) < partition:
                self._client.introduce(self.producer, topic)
                self._known[topic] = partition


def receipt_of(
    messages: Sequence[Outgoing], sent: Sent, acks: Sequence[Ack] = (), timestamp: int = 0
) -> Receipt:
    """A receipt with the offsets of messages in runs without gaps, and `acks` of an earlier try."""
    runs = list(acks)
    places: dict[tuple[str, int], list[int]] = {}
    for number, (offset, _) in sent.offsets.items():
        if offset >= 0:
            places.setdefault(messages[number][:2], []).append(offset)
    for (topic, partition), offsets in sorted(places.items()):
        found = np.sort(offsets)
        for run in np.split(found, np.flatnonzero(np.diff(found) != 1) + 1):
            first, end = int(run[0]), int(run[-1]) + 1
            last = runs[-1] if runs else None
            if last and (last.topic, last.partition, last.end) == (topic, partition, first):
                first, _ = last.first, runs.pop()
            runs.append(Ack(topic, partition, first, end))
    times = [time * 1000 for _, time in sent.offsets.values()]
    return Receipt(None, max([timestamp, *times]), tuple(runs))
