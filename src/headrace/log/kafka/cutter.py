"""Making of commits: the cutter reads what is new in some topics, and appends the next cut.

It reads each record once, in the order of its partition, and notes in the cut how the records stand
in time. Several may cut at once: the journal takes the cut that comes first, and the others start
again where that one ended.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.clock import SECOND
from headrace.errors import LogError, LogUnavailable, UnknownTopic
from headrace.log.declared import TopicRow
from headrace.log.event_time import check_embedded
from headrace.log.kafka.client import Client, fetch
from headrace.log.kafka.cuts import NONE, Record, Stretch, TopicCuts
from headrace.log.kafka.failures import UNKNOWN
from headrace.log.kafka.journal import Journal
from headrace.log.kafka.judging import Judge, times
from headrace.log.kafka.topics import Topics
from headrace.log.record import Batch

ROWS = 250_000
"""The most records of a cut."""

_AT_ONCE = 50_000
_PAUSE = SECOND // 50
_LOOK = SECOND
"""A topic's declaration and partitions are looked up again after so long."""

Place = tuple[str, int]
Ends = dict[Place, int]


@dataclass
class _Seen:
    """The stretch of a partition that is being read."""

    start: int
    judge: Judge
    before: int
    end: int
    rows: int = 0
    misplaced: int = 0
    oldest: int | None = None
    behind: int = 0

    def add(self, messages: list[Message]) -> None:
        for batch in self.judge.batches(messages):
            self._count(batch)
        self.end = max(self.end, (messages[-1].offset() or 0) + 1)

    def _count(self, batch: Batch) -> None:
        assert batch.judged is not None
        good = batch.judged.good
        self.rows += len(batch)
        self.misplaced += int((~good).sum())
        if self.judge.topic.topic.event_time is None or not good.any():
            return
        found = times(self.judge.topic.topic, batch)[good]
        oldest = int(found.min())
        self.oldest = oldest if self.oldest is None else min(self.oldest, oldest)
        met = batch.judged.frontiers[good]
        behind = np.where(met == NONE, 0, met - found)
        self.behind = max(self.behind, int(behind.max()))

    def stretch(self, partition: int) -> Stretch:
        return Stretch(
            partition, self.start, self.end, self.rows, self.misplaced, self.oldest,
            self.before, self.judge.frontier, self.behind,
        )  # fmt: skip


@dataclass
class Cutter:
    """Cuts topics. One thread at a time uses it."""

    client: Client
    topics: Topics
    journal: Journal
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _consumer: Consumer | None = None
    _at: Ends = field(default_factory=dict)
    """The next record that the consumer returns of each partition."""
    _full: bool = False
    """True if the last cut had as many records as it may have."""
    _ids: dict[str, int] = field(default_factory=dict)
    """The topics that the consumer reads."""
    _rows: dict[str, tuple[int, TopicRow]] = field(default_factory=dict)

    def close(self) -> None:
        """Close its consumer."""
        with self._lock:
            self._drop_consumer()

    def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._at = {}
        if consumer is not None:
            consumer.close()

    def cut(self, names: Iterable[str], rows: int | None = None) -> int:
        """Make commits of all records that the topics have now; return the last commit.

        Each has at most so many `rows`.
        """
        with self._lock:
            wanted = [self._find(name, anew=True) for name in sorted(set(names))]
            ends = self._ends(wanted)
            while self._cut(wanted, ends, min(rows or ROWS, ROWS)):
                continue
            return self.journal.read().head

    def cut_on(self, names: Iterable[str], rows: int | None = None) -> bool:
        """Make one commit of what is new in the topics; True if it is full, and more is left."""
        with self._lock:
            wanted = []
            for name in sorted(set(names)):
                with contextlib.suppress(UnknownTopic):  # the others go on without it
                    wanted.append(self._find(name))
            self._full = False
            return self._cut(wanted, self._ends(wanted), min(rows or ROWS, ROWS)) and self._full

    def _find(self, name: str, *, anew: bool = False) -> TopicRow:
        now = self.client.clock.monotonic()
        known = self._rows.get(name)
        if anew or known is None or now - known[0] > _LOOK:
            row = self.topics.find(name)
            check_embedded(row.topic, row.schema)
            known = self._rows[name] = now, row
        return known[1]

    def _ends(self, rows: Collection[TopicRow]) -> Ends:
        places = [(row.name, p) for row in rows for p in range(row.topic.partitions)]
        found = self.client.offsets(places, OffsetSpec.latest())
        return {place: offset for place, (offset, _) in found.items()}

    def _cut(self, wanted: Collection[TopicRow], ends: Ends, most: int) -> bool:
        """Append one cut up to some ends, unless the journal has reached them."""
        index = self.journal.read()
        cuts = {row.name: index.topics.get(row.id, TopicCuts()) for row in wanted}
        if self._is_another(wanted, cuts, ends):
            return False
        starts = self._starts(wanted, cuts, ends)
        new = {place for place, start in starts.items() if start < ends[place]}
        # Partitions that no cut has yet, and those whose rows are gone before anybody cut them.
        unread = {
            (name, p)
            for (name, p), start in starts.items()
            if p >= len(known := cuts[name].last.ends) or known[p] < start
        }
        if not new and not unread:
            return False
        seen = {
            (row.name, p): self._begin(row, p, starts[row.name, p], cuts[row.name])
            for row in wanted
            for p in range(row.topic.partitions)
            if (row.name, p) in new | unread
        }
        if new:
            self._follow(starts, {row.name: row.id for row in wanted})
            self._read({place: ends[place] for place in new}, seen, most)
        made = {
            row.id: tuple(
                seen[row.name, p].stretch(p)
                for p in range(row.topic.partitions)
                if (row.name, p) in seen
                and (seen[row.name, p].end > seen[row.name, p].start or (row.name, p) in unread)
            )
            for row in wanted
        }
        if any(made.values()):
            self.journal.append(Record({topic: found for topic, found in made.items() if found}))
        return True

    def _is_another(
        self, wanted: Collection[TopicRow], cuts: Mapping[str, TopicCuts], ends: Ends
    ) -> bool:
        """True if the journal is beyond some ends because the topic was made again.

        If another has cut more since the ends were looked up, that is well. Else a broker has lost
        records, which is an error.
        """
        places = [
            (row.name, p)
            for row in wanted
            for p, known in enumerate(cuts[row.name].last.ends[: row.topic.partitions])
            if ends[row.name, p] < known
        ]
        if not places:
            return False
        topic, partition = places[0]
        known = next(row for row in wanted if row.name == topic)
        now = self._find(topic, anew=True)
        reached = cuts[topic].last.ends[partition]
        end = self._ends([now]).get((topic, partition), 0)
        if now.id == known.id and end < reached:
            raise LogError(
                f"Partition {partition} of topic {topic!r} ends at {end:,}, but commits reach "
                f"{reached:,}: a broker has lost records",
                hint="Put those that are left into another topic, and run the pipeline on that",
                topic=topic,
                partition=partition,
            )
        return now.id != known.id

    def _begin(self, row: TopicRow, partition: int, start: int, cuts: TopicCuts) -> _Seen:
        last = cuts.last
        known = partition < len(last.ends)
        before = last.frontiers[partition] if known else last.lowest
        begin = last.ends[partition] if known else start
        return _Seen(begin, Judge(row, before), before, max(begin, start))

    def _starts(
        self, wanted: Collection[TopicRow], cuts: Mapping[str, TopicCuts], ends: Ends
    ) -> Ends:
        """The offset of each partition from which the journal has no cut."""
        found: Ends = {}
        for row in wanted:
            last = cuts[row.name].last.ends
            found |= {(row.name, p): end for p, end in enumerate(last[: row.topic.partitions])}
        # Retention may have removed rows that nobody has cut.
        unsure = [place for place, end in ends.items() if found.get(place, -1) < end]
        first = self.client.offsets(unsure, OffsetSpec.earliest()) if unsure else {}
        return found | {
            place: max(found.get(place, 0), offset) for place, (offset, _) in first.items()
        }

    # Reading

    def _follow(self, starts: Ends, ids: dict[str, int]) -> None:
        """Let the consumer go on at some offsets."""
        if any(self._ids.get(name, id) != id for name, id in ids.items()):
            self._drop_consumer()  # it would go on in a topic that was deleted
        self._ids = ids
        if self._consumer is None:
            self._consumer = self.client.consumer(fetch_wait_max_ms=100)
        if starts != self._at:
            self.client.introduce(self._consumer, *{topic for topic, _ in starts})
            self._consumer.assign([TopicPartition(*place, at) for place, at in starts.items()])
            self._at = dict(starts)

    def _read(self, ends: Ends, seen: Mapping[Place, _Seen], most: int) -> None:
        """Read up to some ends, or about so many rows."""
        assert self._consumer is not None
        patience = int(self.client.seconds * SECOND)
        deadline = self.client.clock.monotonic() + patience
        try:
            while any(seen[place].end < end for place, end in ends.items()):
                left = most - sum(one.rows for one in seen.values())
                if left <= 0:
                    self._full = True
                    return
                found = fetch(self._consumer, min(left, _AT_ONCE), 0.1)
                rows, events = _sorted_out(found)
                for place, messages in _by_place(rows).items():
                    self._take(place, messages, seen)
                if not all(self._hears(event, seen) for event in events):
                    self._drop_consumer()
                    self.client.clock.sleep(_PAUSE)
                    return
                now = self.client.clock.monotonic()
                if found:
                    deadline = now + patience
                if now > deadline:
                    raise LogUnavailable(
                        "No records arrive of " + ", ".join(sorted({t for t, _ in ends}))
                    )
        except BaseException:
            self._at = {}  # what was read is lost: it is read again
            raise

    def _take(self, place: Place, messages: list[Message], seen: Mapping[Place, _Seen]) -> None:
        if place not in seen:
            # It came after the ends were looked up: the next cut reads it again.
            self._at[place] = -1
            return
        seen[place].add(messages)
        self._at[place] = seen[place].end

    def _hears(self, event: Message, seen: Mapping[Place, _Seen]) -> bool:
        """Take in an event; False if the ends and beginnings have to be looked up again."""
        error, place = event.error(), (event.topic(), event.partition())
        assert error is not None
        if error.code() in UNKNOWN | {KafkaError._AUTO_OFFSET_RESET}:
            return False
        if error.code() != KafkaError._PARTITION_EOF:
            raise self.client.failure(error, topic=place[0], partition=place[1])
        if (one := seen.get(place)) is not None:
            # Markers of transactions take offsets, too.
            one.end = max(one.end, event.offset() or 0)
            self._at[place] = one.end
        return True


def _sorted_out(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """The records among messages, and the events."""
    if not any(map(Message.error, messages)):
        return messages, []
    rows = [message for message in messages if message.error() is None]
    return rows, [message for message in messages if message.error() is not None]


def _by_place(messages: list[Message]) -> dict[Place, list[Message]]:
    """Records by topic and partition, in order."""
    found: dict[Place, list[Message]] = {}
    topics = list(map(Message.topic, messages))
    partitions = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
    for topic in dict.fromkeys(topics):
        of_topic = np.array([name == topic for name in topics])
        for partition in np.unique(partitions[of_topic]).tolist():
            mine = np.flatnonzero(of_topic & (partitions == partition))
            found[topic, partition] = [messages[place] for place in mine.tolist()]
    return found
