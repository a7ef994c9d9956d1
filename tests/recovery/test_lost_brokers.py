"""Three brokers, one of them lost: records that all replicas acknowledged survive, others may not.

The test chooses the brokers of each topic's replicas, the leader first.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.servers.kafka import Cluster
from headrace.servers.kafka.state import PartitionState
from tests import kafka
from tests.waiting import left, wait_until

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kafka.running(tmp_path_factory.mktemp("three"), brokers=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(three: Cluster) -> Iterator[Cluster]:
    """The cluster with all its brokers, which are restored afterwards."""
    yield three
    three.up()
    wait_until(lambda: three.state().up and not three.state().under_replicated)


def create(cluster: Cluster, topic: str, replicas: list[int], **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.state().servers})
    new = NewTopic(topic, 1, replica_assignment=[replicas], config=settings)
    admin.create_topics([new])[topic].result()
    wait_until(lambda: placed(cluster, topic).leader == replicas[0])


def placed(cluster: Cluster, topic: str) -> PartitionState:
    """The placement of a topic's only partition; empty if no broker answers."""
    found = [one for one in cluster.state().partitions if one.topic == topic]
    return found[0] if found else PartitionState(topic, 0, -1, (), ())


def send(cluster: Cluster, topic: str, values: list[str], acks: str) -> list[str]:
    """The acknowledged values of those sent one after the other, each once."""
    acknowledged = []

    def delivered(error: KafkaError | None, message: Message[bytes, bytes]) -> None:
        value = message.value()
        if error is None and value is not None:
            acknowledged.append(value.decode())

    producer = Producer(
        {
            "bootstrap.servers": cluster.state().servers,
            "acks": acks,
            "retries": 0,
            "request.timeout.ms": 3_000,
            "message.timeout.ms": 4_000,
        }
    )
    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
        producer.flush(left())
    return acknowledged


def stored(cluster: Cluster, topic: str) -> list[str]:
    """Every value that can be read now."""
    consumer = Consumer({"bootstrap.servers": cluster.state().servers, "group.id": "nobody"})
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=left())
    consumer.assign([place])
    values: list[str] = []
    while len(values) < end:
        values += [value.decode() for one in consumer.consume(1, 30) if (value := one.value())]
    consumer.close()
    return values


@pytest.mark.slow
def test_what_all_in_sync_replicas_acknowledged_survives_the_loss_of_the_leader(
    cluster: Cluster,
) -> None:
    create(cluster, "safe", [1, 2, 3])
    assert set(placed(cluster, "safe").in_sync) == {1, 2, 3}
    acknowledged: list[str] = []

    def delivered(error: KafkaError | None, message: Message[bytes, bytes]) -> None:
        value = message.value()
        if error is None and value is not None:
            acknowledged.append(value.decode())

    servers = cluster.state().servers
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    values = [str(number) for number in range(2_000)]
    for number, value in enumerate(values):
        producer.produce("safe", value, on_delivery=delivered)
        producer.poll(0)
        if number == 1_000:
            wait_until(lambda: producer.poll(0) is not None and acknowledged)
            cluster.kill(1)
    assert producer.flush(left()) == 0
    assert acknowledged == values

    now = placed(cluster, "safe")
    assert now.leader in (2, 3)
    wait_until(lambda: set(placed(cluster, "safe").in_sync) == {2, 3})
    assert stored(cluster, "safe") == values
    state = cluster.state()
    assert not state.up
    assert [node.alive for node in state.nodes] == [False, True, True]
    assert state.url != f"kafka://127.0.0.1:{state.nodes[0].port}", "a URL nobody listens at"

    assert cluster.up().up
    wait_until(lambda: set(placed(cluster, "safe").in_sync) == {1, 2, 3})


@pytest.mark.slow
def test_with_too_few_replicas_in_sync_all_is_refused_and_one_is_not(cluster: Cluster) -> None:
    create(cluster, "few", [1, 2], **{"min.insync.replicas": "2"})
    assert send(cluster, "few", ["a"], "all") == ["a"]
    cluster.kill(2)
    wait_until(lambda: placed(cluster, "few").in_sync == (1,))
    assert cluster.state().under_replicated
    assert send(cluster, "few", ["b"], "all") == []
    assert send(cluster, "few", ["c"], "1") == ["c"]


@pytest.mark.slow
def test_an_unclean_election_loses_what_the_last_in_sync_replica_had(cluster: Cluster) -> None:
    settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    create(cluster, "unclean", [1, 2], **settings)
    assert send(cluster, "unclean", ["a"], "all") == ["a"]
    cluster.kill(2)
    wait_until(lambda: placed(cluster, "unclean").in_sync == (1,))
    # "all" means those in sync, which is one: only the minimum of in-sync replicas makes it safe.
    assert send(cluster, "unclean", ["b"], "all") == ["b"]
    cluster.kill(1)
    cluster.up(only=[2])
    wait_until(lambda: placed(cluster, "unclean").leader == 2)
    assert stored(cluster, "unclean") == ["a"]


@pytest.mark.slow
def test_what_only_the_leader_acknowledged_is_lost_with_it(tmp_path: Path) -> None:
    # A stopped broker stays in sync for a while, long enough to lose the leader meanwhile.
    patience = {"broker.session.timeout.ms": "20000"}
    with kafka.running(tmp_path / "kafka", brokers=3, **patience) as cluster:
        create(cluster, "unsafe", [1, 2], **{"min.insync.replicas": "1"})
        safe = send(cluster, "unsafe", [f"safe {number}" for number in range(20)], "all")
        assert len(safe) == 20
        cluster.signal(2, signal.SIGSTOP)
        assert send(cluster, "unsafe", ["refused"], "all") == []
        # The follower may have fetched the first of them before; it cannot fetch again.
        risky = send(cluster, "unsafe", [f"risky {number}" for number in range(20)], "1")
        assert len(risky) == 20
        assert set(placed(cluster, "unsafe").in_sync) == {1, 2}
        cluster.kill(1)
        cluster.signal(2, signal.SIGCONT)
        wait_until(lambda: placed(cluster, "unsafe").leader == 2)
        found = stored(cluster, "unsafe")
        assert found[:20] == safe
        assert risky[-1] not in found
        # The old leader then follows the new one.
        cluster.up()
        wait_until(lambda: set(placed(cluster, "unsafe").in_sync) == {1, 2})
        assert stored(cluster, "unsafe") == found
