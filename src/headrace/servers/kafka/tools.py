"""Kafka's command-line tools, by the names of its scripts without the `kafka-`."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import InvalidSetting
from headrace.servers.java import class_path
from headrace.servers.java.home import BRIEF, java

_PACKAGE = "org.apache.kafka.tools"
_LOGGING = Path(__file__).with_name("tools-log4j2.properties")

TOOLS = {
    "acls": f"{_PACKAGE}.AclCommand",
    "broker-api-versions": f"{_PACKAGE}.BrokerApiVersionsCommand",
    "cluster": f"{_PACKAGE}.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "console-producer": f"{_PACKAGE}.ConsoleProducer",
    "console-share-consumer": f"{_PACKAGE}.consumer.ConsoleShareConsumer",
    "consumer-groups": f"{_PACKAGE}.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": f"{_PACKAGE}.ConsumerPerformance",
    "delete-records": f"{_PACKAGE}.DeleteRecordsCommand",
    "dump-log": f"{_PACKAGE}.DumpLogSegments",
    "features": f"{_PACKAGE}.FeatureCommand",
    "get-offsets": f"{_PACKAGE}.GetOffsetShell",
    "groups": f"{_PACKAGE}.GroupsCommand",
    "leader-election": f"{_PACKAGE}.LeaderElectionCommand",
    "log-dirs": f"{_PACKAGE}.LogDirsCommand",
    "metadata-quorum": f"{_PACKAGE}.MetadataQuorumCommand",
    "producer-perf-test": f"{_PACKAGE}.ProducerPerformance",
    "reassign-partitions": f"{_PACKAGE}.reassign.ReassignPartitionsCommand",
    "share-groups": f"{_PACKAGE}.consumer.group.ShareGroupCommand",
    "storage": "kafka.tools.StorageTool",
    "topics": f"{_PACKAGE}.TopicCommand",
    "transactions": f"{_PACKAGE}.TransactionsCommand",
}

_WITHOUT_SERVER = {"dump-log", "producer-perf-test", "storage"}
"""Tools that read files, or that take the server in another option."""


def tool_command(name: str, arguments: list[str], servers: str) -> list[str]:
    """The command line of a tool, with these servers unless the arguments name others."""
    name = name.removeprefix("kafka-").removesuffix(".sh")
    if name not in TOOLS:
        raise InvalidSetting(f"Kafka has no tool {name!r}", hint=f"It has {', '.join(TOOLS)}")
    named = any(argument.startswith("--bootstrap-") for argument in arguments)
    if servers and not named and name not in _WITHOUT_SERVER:
        arguments = ["--bootstrap-server", servers, *arguments]
    quiet = f"-Dlog4j2.configurationFile={_LOGGING}"
    return [java(), *BRIEF, "-Xmx256m", quiet, "-cp", class_path("kafka"), TOOLS[name], *arguments]
