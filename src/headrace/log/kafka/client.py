"""The connection to a Kafka cluster: clients with common settings, and calls with a timeout."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import IsolationLevel as Isolation
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from headrace.clock import SECOND, Clock, SystemClock
from headrace.errors import HeadraceError, LogUnavailable, MisusedHandle, UnknownTopic
from headrace.forks import in_child
from headrace.log.declared import unknown_topic
from headrace.log.kafka.address import KafkaAddress
from headrace.log.kafka.failures import PASSING, UNKNOWN, code_of, translated

T = TypeVar("T")

log = logging.getLogger("headrace.kafka")
log.addHandler(logging.NullHandler())
log.propagate = False  # librdkafka's messages are for those who ask for this logger

_MESSAGE_BYTES = 72 << 20
"""The largest request of a client: the largest record, encoded as JSON."""

_MOMENT = SECOND // 100


HOME = "kafka"
"""The home of consumers and committers; a broker itself rejects those of another cluster."""


class Client:
    """A factory of Kafka clients for one address, and the owner of the shared ones."""

    def __init__(self, address: KafkaAddress, clock: Clock | None = None) -> None:
        self.address = address
        self.clock = clock or SystemClock()
        self.seconds = address.timeout.total_seconds()
        self._last: KafkaError | None = None
        self._idle: list[Consumer] = []
        self._lock = threading.Lock()
        self._inherited = False
        in_child(self, Client._inherit)
        try:
            self._admin = AdminClient(self._settings({}))
        except KafkaException as error:
            raise translated(error, self.address) from None

    @property
    def admin(self) -> AdminClient:
        """The shared admin client."""
        self._check_process()
        return self._admin

    def _inherit(self) -> None:
        # librdkafka's threads stay in the parent, and its clients hang in a child, even on close.
        self._inherited = True

    def _check_process(self) -> None:
        if self._inherited:
            raise MisusedHandle(
                "This log on Kafka belongs to the process that this one was forked from",
                hint="Open it again: open_log()",
            )

    def _settings(self, own: Mapping[str, Any]) -> dict[str, Any]:
        self._check_process()
        return {
            "client.id": "headrace",
            "socket.keepalive.enable": True,
            "reconnect.backoff.max.ms": 1000,
            "allow.auto.create.topics": False,
            "topic.metadata.refresh.interval.ms": 30_000,
            **self.address.settings,
            "bootstrap.servers": self.address.servers,
            "error_cb": self._hear,
            "logger": log,
            **own,
        }

    def _hear(self, error: KafkaError) -> None:
        """Keep the cause for a later call, which knows only that it timed out."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last is None:
            self._last = error

    def failure(self, error: BaseException | KafkaError, **about: Any) -> HeadraceError:
        """Kafka's error as a headrace error, with the cause if known."""
        found = translated(error, self.address, **about)
        if not isinstance(found, LogUnavailable):
            return found
        while self.admin.poll(0):
            continue  # the client reports its errors only when polled
        return found if self._last is None else translated(self._last, self.address, **about)

    @contextlib.contextmanager
    def translating(self) -> Iterator[None]:
        """Raise Kafka's errors in the block as headrace's."""
        try:
            yield
        except KafkaException as error:
            raise self.failure(error) from None

    def producer(self, **settings: Any) -> Producer:
        """A producer with these settings."""
        own = {"message.max.bytes": _MESSAGE_BYTES, "linger.ms": 5, "compression.type": "lz4"}
        with self.translating():
            return Producer(self._settings(own | _dotted(settings)))

    def transactional(self, id: str, **settings: Any) -> Producer:
        """A producer that owns a transactional id; it fences any earlier owner."""
        producer = self.producer(transactional_id=id, **settings)
        with self.translating():
            # Connect first: else the producer retries its coordinator only after half a second.
            producer.list_topics(timeout=self.seconds)
            producer.init_transactions(self.seconds)
        return producer

    def consumer(self, **settings: Any) -> Consumer:
        """A consumer that never commits automatically and never resets its offset."""
        own = {
            "group.id": "headrace-reader",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            # A partition that joins a fetch waits until the running fetch ends.
            "fetch.wait.max.ms": 20,
            "fetch.error.backoff.ms": 50,
            "receive.message.max.bytes": 2 * _MESSAGE_BYTES,
        }
        with self.translating():
            return Consumer(self._settings(own | _dotted(settings)))

    def share_consumer(self, **settings: Any) -> ShareConsumer:
        """A member of a share group."""
        own = self._settings({"receive.message.max.bytes": 2 * _MESSAGE_BYTES} | _dotted(settings))
        # The preview of share groups refuses the setting, and creates no topics.
        del own["allow.auto.create.topics"]
        with self.translating():
            return ShareConsumer(own)

    def introduce(self, handle: Consumer | Producer, *topics: str) -> None:
        """Make a client look up topics now; otherwise it does so at the next full second."""
        with self.translating():
            for topic in topics:
                handle.list_topics(topic, timeout=self.seconds)

    @contextlib.contextmanager
    def reader(self, *places: TopicPartition) -> Iterator[Consumer]:
        """A consumer without a group, for one scan of these partitions."""
        self._check_process()
        with self._lock:
            reader = self._idle.pop() if self._idle else None
        reader = reader or self.consumer()
        try:
            self.introduce(reader, *{place.topic for place in places})
            reader.assign(list(places))
            yield reader
        finally:
            reader.unassign()
            with self._lock:
                self._idle.append(reader)

    def close(self) -> None:
        """Close the shared clients."""
        if self._inherited:
            return
        with self._lock:
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()

    # Calls

    def wait(self, answer: Future[T], **about: Any) -> T:
        """Kafka's answer; its error is raised as a headrace error."""
        try:
            found = answer.result(self.seconds + 5)
        except (KafkaException, TimeoutError) as error:
            raise self.failure(error, **about) from None
        self._last = None
        return found

    def configure(
        self, kind: ResourceType, name: str, configs: Mapping[str, str], **about: Any
    ) -> None:
        """Set some of the configuration of a topic or group."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configs.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        answers = self.admin.incremental_alter_configs([resource], request_timeout=self.seconds)
        self.wait(answers[resource], **about)

    def ask(self, call: Callable[[], Future[T]]) -> T:
        """Kafka's answer to an idempotent call, retried until its coordinators are up."""
        for _ in self.moments():
            try:
                found = call().result(self.seconds + 5)
            except KafkaException as error:
                if code_of(error) not in PASSING:
                    raise
                last = error
                continue
            self._last = None
            return found
        raise last

    def moments(self) -> Iterator[None]:
        """Yield once per attempt, with a pause in between, until the timeout."""
        end = self.clock.monotonic() + int(self.seconds * SECOND)
        while True:
            yield
            if self.clock.monotonic() > end:
                return
            self.clock.sleep(_MOMENT)

    def check(self) -> str:
        """Return the id of the cluster; raise if it does not answer."""
        with self.translating():
            found = self.admin.list_topics(timeout=self.seconds)
        self._last = None
        return str(found.cluster_id)

    def check_trouble(self) -> None:
        """Call `check` if the client has reported an error since the last answer."""
        if self._last is not None:
            self.check()

    def has_topic(self, name: str) -> bool:
        """True if Kafka has a topic of this name."""
        answer = self.admin.describe_topics(TopicCollection([name]), request_timeout=self.seconds)
        try:
            self.wait(answer[name], topic=name)
        except UnknownTopic:
            return False
        return True

    def offsets(
        self, places: Iterable[tuple[str, int]], spec: OffsetSpec, *, uncommitted: bool = False
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """The offset and its timestamp in each partition; -1 where there is none.

        Raises the first error of any partition.
        """
        found = self.some_offsets(places, spec, uncommitted=uncommitted)
        for offset in found.values():
            if isinstance(offset, HeadraceError):
                raise offset
        return {place: o for place, o in found.items() if not isinstance(o, HeadraceError)}

    def some_offsets(
        self, places: Iterable[tuple[str, int]], spec: OffsetSpec, *, uncommitted: bool = False
    ) -> dict[tuple[str, int], tuple[int, int] | HeadraceError]:
        """As `offsets`, but with an error as the value of a partition that failed."""
        left = list(places)
        level = Isolation.READ_UNCOMMITTED if uncommitted else Isolation.READ_COMMITTED
        found: dict[tuple[str, int], tuple[int, int] | HeadraceError] = {}
        for _ in self.moments() if left else ():
            answers = self.admin.list_offsets(
                {TopicPartition(topic, partition): spec for topic, partition in left},
                isolation_level=level,
                request_timeout=self.seconds,
            )
            left = []
            for asked, answer in answers.items():
                place = (asked.topic, asked.partition)
                try:
                    listed = answer.result(self.seconds + 5)
                    found[place] = (listed.offset, listed.timestamp)
                    self._last = None
                except (KafkaException, TimeoutError) as error:
                    found[place] = self.failure(error, topic=place[0], partition=place[1])
                    code = code_of(error)
                    if code in UNKNOWN | {KafkaError._NOENT} and not self.has_topic(place[0]):
                        found[place] = unknown_topic(place[0])
                    elif code in PASSING | UNKNOWN:
                        left.append(place)  # the client's metadata is out of date
            if not left:
                break
            # The client does not look for a newly elected leader by itself.
            self.introduce(self.admin, *{topic for topic, _ in left})
        return found


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def fetch(consumer: Consumer, most: int, seconds: float) -> list[Message]:
    """Messages as soon as there is one; Kafka's own call waits until it has `most` of them."""
    found: list[Message] = consumer.consume(1, seconds)
    if found and most > 1:
        # Python would look for garbage among the new messages again and again, which takes longer
        # than reading them.
        collects = gc.isenabled()
        gc.disable()
        try:
            found += consumer.consume(most - 1, 0)
        finally:
            if collects:
                gc.enable()
    return found
