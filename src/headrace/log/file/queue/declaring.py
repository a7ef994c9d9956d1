"""New queues, and the settings that fit a topic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import apsw

from headrace.errors import InvalidSetting, QueueExists
from headrace.log.declared import TopicRow
from headrace.log.file.catalog import one
from headrace.log.file.parts import FilePart
from headrace.log.file.topics import find_topic
from headrace.log.queueing import QueueSettings
from headrace.log.state import Ack


class Creating(FilePart):
    """A new queue over a topic, from these offsets by partition."""

    lasting = True

    def __init__(
        self,
        name: str,
        topic: str,
        settings: QueueSettings,
        offsets: Mapping[int, int],
        boot: str,
    ) -> None:
        self._name = name
        self._topic = topic
        self._settings = settings
        self._offsets = offsets
        self._boot = boot

    def check(self, db: apsw.Connection) -> None:
        if one(db, "SELECT 1 FROM queue WHERE name = ?", self._name):
            raise QueueExists(
                f"Queue {self._name!r} already exists",
                hint=f"'headrace queue show {self._name}' shows it; take another name, or use it",
                queue=self._name,
            )
        check_topic(find_topic(db, self._topic), self._settings)

    def record(
        self, db: apsw.Connection, commit: int | None, time: int, acks: Sequence[Ack]
    ) -> None:
        topic = find_topic(db, self._topic)
        db.execute(
            "INSERT INTO queue (name, topic, settings, boot) VALUES (?, ?, ?, ?)",
            (self._name, topic.id, json.dumps(self._settings.to_text()), self._boot),
        )
        queue = db.last_insert_rowid()
        db.executemany(
            "INSERT INTO queue_partition VALUES (?, ?, ?)",
            [(queue, p, self._offsets.get(p, 0)) for p in range(topic.topic.partitions)],
        )


def check_topic(topic: TopicRow, settings: QueueSettings) -> None:
    """Raise if a queue over a topic cannot have these settings."""
    if topic.topic.settings.compacts:
        raise InvalidSetting(
            f"Topic {topic.name!r} is compacted, which would remove messages that wait",
            hint="Use a topic with cleanup=delete",
        )
    if settings.by_key and topic.columns is not None and topic.topic.key is None:
        raise InvalidSetting(
            f"Topic {topic.name!r} has no key, so a queue over it has no order or limits per key",
            hint="Declare the topic's key, or leave out ordered, key_concurrency and key_rate",
        )
