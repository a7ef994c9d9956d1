"""Kafka for tests: one broker for tests that only use it, and others for tests that break it."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from headrace.servers.kafka import Cluster, ClusterState

HASTE = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "200",
    "group.min.session.timeout.ms": "500",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
"""Periodic work of a broker at short intervals, so that no test waits for it."""


@contextlib.contextmanager
def running(folder: Path, brokers: int = 1, **settings: str) -> Iterator[Cluster]:
    """A cluster for this test alone, removed with its data at the end."""
    cluster = Cluster(folder, brief=True)
    try:
        cluster.up(brokers, 0, HASTE | settings)
        yield cluster
    finally:
        cluster.down(remove=True)


@contextlib.contextmanager
def shared(folder: Path, user: str) -> Iterator[ClusterState]:
    """The broker that several processes share: the first one starts it, the last one stops it."""
    users = folder / "users"
    users.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(folder / "cluster", brief=True)
    with _alone(folder):
        (users / user).touch()
        state = cluster.up(1, None, HASTE)
    try:
        yield state
    finally:
        with _alone(folder):
            (users / user).unlink()
            if not any(users.iterdir()):
                cluster.down(remove=True)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
