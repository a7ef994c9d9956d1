"""A real Kafka on this machine: from locked jars, on loopback, in its own folder.

A pipeline on the embedded log runs on Kafka after a change of URL. This is the Kafka to try it on,
and the one that the tests use. Three brokers show what replication is for.
"""

from headrace.servers.kafka.cluster import Cluster
from headrace.servers.kafka.state import ClusterState, NodeState

__all__ = ["Cluster", "ClusterState", "NodeState"]
