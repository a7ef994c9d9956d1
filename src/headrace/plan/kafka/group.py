"""The position of a step as offsets of a consumer group, so that Kafka's own tools show its lag.

headrace never reads them: a step continues from its checkpoint and the store.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from headrace.log.kafka.address import KafkaAddress
from headrace.log.kafka.client import Client
from headrace.plan.position import Positions

logger = logging.getLogger("headrace.kafka")


class Group:
    """The group `APP.STEP`, which has no members."""

    def __init__(self, address: KafkaAddress, name: str) -> None:
        self._client = Client(address)
        self.name = name

    def tell(self, end: Positions) -> None:
        """Commit a position, without waiting. A failure is only logged."""
        places = [
            TopicPartition(topic, partition, offset)
            for topic, position in end.items()
            for partition, offset in enumerate(position.offsets)
        ]
        wish = ConsumerGroupTopicPartitions(self.name, places)
        try:
            answers = self._client.admin.alter_consumer_group_offsets([wish])
        except KafkaException as error:
            self._note(error)
            return
        for answer in answers.values():
            answer.add_done_callback(self._look)

    def _look(self, answer: Future[ConsumerGroupTopicPartitions]) -> None:
        if (error := answer.exception()) is not None:
            self._note(error)

    def _note(self, error: BaseException) -> None:
        logger.warning("the offsets of group %s were not committed: %s", self.name, error)
