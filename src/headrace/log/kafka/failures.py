"""The translation of Kafka's errors to headrace's."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headrace.errors import (
    AccessDenied,
    DiskFull,
    GroupActive,
    HeadraceError,
    InvalidName,
    InvalidRecord,
    InvalidSetting,
    LogError,
    LogUnavailable,
    MemberFenced,
    RecordTooLarge,
    UnknownGroup,
    UnknownPartition,
)
from headrace.log.declared import unknown_topic
from headrace.log.kafka.address import KafkaAddress

PASSING = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError._NOENT,  # no leader of any partition is known
}
"""Transient errors: a new partition or group has no leader yet."""
_AWAY = PASSING | {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._NODE_UPDATE,
    KafkaError._RETRY,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_REFUSED = {
    KafkaError._INVALID_ARG,
    KafkaError._CONFLICT,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
}
FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
GONE_ON = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._MAX_POLL_EXCEEDED,
}
"""The group has moved on without the member."""
UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_ID}


_KINDS: tuple[tuple[set[int], type[HeadraceError], str, str], ...] = (
    (
        _DENIED,
        AccessDenied,
        "Kafka at {servers} denies access: {said}",
        "Check the security settings of the log's URL and the permissions of its user",
    ),
    (
        GONE_ON,
        MemberFenced,
        "The group has moved on without this member: {said}",
        "It sent no heartbeat for its session, or did not poll for its max_poll_interval, or its "
        "partition was reassigned. Poll again to rejoin",
    ),
    (
        {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE},
        RecordTooLarge,
        "A record for topic {topic!r} is larger than Kafka accepts: {said}",
        "Store large objects elsewhere and send their address, or raise the topic's limit: "
        "headrace topics alter {topic} --set max_record_bytes=16MiB",
    ),
    (
        {KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG},
        InvalidRecord,
        "Kafka rejected a record for topic {topic!r}: {said}",
        "",
    ),
    (
        {KafkaError.KAFKA_STORAGE_ERROR},
        DiskFull,
        "A disk of the Kafka broker at {servers} is full or failed: {said}",
        "Check the disks of the broker, then try again",
    ),
    (
        {KafkaError._UNKNOWN_PARTITION},
        UnknownPartition,
        "Topic {topic!r} has no partition {partition}",
        "'headrace topics describe {topic}' lists its partitions",
    ),
    (
        {KafkaError.TOPIC_EXCEPTION},
        InvalidName,
        "Kafka does not accept the name {topic!r}: {said}",
        "",
    ),
    (_REFUSED, InvalidSetting, "Kafka does not accept a setting: {said}", ""),
    (
        _AWAY,
        LogUnavailable,
        "Kafka at {servers} does not answer: {said}",
        "Check that the broker runs and can be reached from here, with 'headrace kafka status' or "
        "Kafka's own tools",
    ),
)
"""Kafka's error codes, and for each our error, its message and its hint."""


def code_of(error: BaseException | KafkaError) -> int:
    """Kafka's code of an error."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    return int(error.code()) if isinstance(error, KafkaError) else KafkaError._FAIL


def translated(
    error: BaseException | KafkaError,
    address: KafkaAddress,
    *,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
) -> HeadraceError:
    """Kafka's error as a headrace error about this topic, partition or group."""
    code = code_of(error)
    inner = error.args[0] if isinstance(error, KafkaException) else error
    if code in UNKNOWN and topic is not None:
        return unknown_topic(topic)
    if code == KafkaError.NON_EMPTY_GROUP:
        return group_active(group or "")
    if code == KafkaError.GROUP_ID_NOT_FOUND:
        return unknown_group(group or "")
    facts = {
        "servers": address.servers,
        "said": address.scrub(inner.str() if isinstance(inner, KafkaError) else str(inner)),
        "topic": topic,
        "partition": partition,
    }
    about: dict[str, Any] = {
        name: facts[name] for name in ("topic", "partition") if facts[name] is not None
    }
    for codes, kind, message, hint in _KINDS:
        if code in codes:
            return kind(message.format(**facts), hint=hint.format(**facts), **about)
    if isinstance(inner, KafkaError) and inner.retriable():
        return LogUnavailable(f"Kafka at {address.servers}: {facts['said']}", **about)
    return LogError(f"Kafka at {address.servers}: {facts['said']}", **about)


def group_active(group: str) -> GroupActive:
    """The error for a group that has members."""
    return GroupActive(
        f"Group {group!r} has active members",
        hint="Stop its consumers first; a killed one counts until its session times out",
        group=group,
    )


def unknown_group(group: str) -> UnknownGroup:
    """The error for a name that no group has."""
    return UnknownGroup(
        f"There is no group {group!r}", hint="'headrace groups list' lists all groups", group=group
    )
