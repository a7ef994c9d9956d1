"""The simulation of leader loss against real brokers: what its model loses, Kafka loses.

Followers are stopped after they have copied some records, so that they copy no more. The leader
acknowledges further records alone, and is killed.
"""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from headrace.servers.kafka import Cluster
from headrace.studio.learn.models import replicas
from headrace.studio.learn.models.replicas import BROKERS, kill, replicate
from tests import kafka
from tests.recovery.test_lost_brokers import create, placed, send, stored
from tests.waiting import wait_until

pytestmark = [pytest.mark.service, pytest.mark.slow]

COPIED, ALONE = 15, 25


def modelled(*, acks_all: bool) -> replicas.Cluster:
    """The same steps in the model: some records are copied, more are sent, the leader dies."""
    cluster = replicas.Cluster(acks_all)
    for _ in range(COPIED):
        cluster = replicate(replicas.send(cluster), dict.fromkeys(BROKERS, 1))
    for _ in range(ALONE):
        cluster = replicas.send(cluster)
    return kill(cluster, 1)


def _led_by_another(cluster: Cluster, topic: str) -> bool:
    return placed(cluster, topic).leader in (2, 3)


def test_a_dead_leader_loses_what_the_model_loses(tmp_path: Path) -> None:
    # Stopped brokers stay in sync for a while, long enough to lose the leader meanwhile.
    patience = {"broker.session.timeout.ms": "20000"}
    with kafka.running(tmp_path / "kafka", brokers=3, **patience) as cluster:
        for topic in ("one", "all"):
            create(cluster, topic, [1, 2, 3], **{"min.insync.replicas": "1"})
        copied = [f"copied {number}" for number in range(COPIED)]
        # With acks=all, so that every follower has them.
        for topic in ("one", "all"):
            assert send(cluster, topic, copied, "all") == copied
        cluster.signal(2, signal.SIGSTOP)
        cluster.signal(3, signal.SIGSTOP)
        # Followers have one fetch under way, which this record answers. They cannot fetch again.
        unanswered = send(cluster, "all", ["unanswered"], "all")
        alone = [f"alone {number}" for number in range(ALONE)]
        acknowledged = {
            "one": copied + send(cluster, "one", alone, "1"),
            "all": copied + unanswered,
        }
        cluster.kill(1)
        cluster.signal(2, signal.SIGCONT)
        cluster.signal(3, signal.SIGCONT)
        for topic, acks_all in (("one", False), ("all", True)):
            wait_until(partial(_led_by_another, cluster, topic))
            found = stored(cluster, topic)
            lost = [value for value in acknowledged[topic] if value not in found]
            model = modelled(acks_all=acks_all)
            assert len(acknowledged[topic]) == len(model.acked), topic
            assert len(lost) == len(model.lost), topic
        assert len(modelled(acks_all=False).lost) == ALONE
