"""The topics of a domain. Their columns are fixed, so that any pipeline can read them."""

from __future__ import annotations

from headrace.log import Topic, TopicSettings
from headrace.schema.ddl import parse_schema

EVENTS = (
    "aggregate STRING NOT NULL, version BIGINT NOT NULL, type STRING NOT NULL, "
    "schema INT NOT NULL, at TIMESTAMP NOT NULL, id STRING NOT NULL, command STRING NOT NULL, "
    "metadata MAP<STRING, STRING>, tags ARRAY<STRING>, data STRING NOT NULL"
)
"""`aggregate` is the kind and the id, as in `account/a-1`; `version` counts its events from 1.
`schema` is the version of the event's type, `command` the id of the command, `data` JSON."""

COMMANDS = (
    "id STRING NOT NULL, aggregate STRING NOT NULL, type STRING NOT NULL, schema INT NOT NULL, "
    "at TIMESTAMP NOT NULL, outcome STRING NOT NULL, reason STRING, "
    "metadata MAP<STRING, STRING>, tags ARRAY<STRING>, data STRING NOT NULL"
)
"""`outcome` is `accepted` or `refused`, the latter with its `reason`."""

SNAPSHOTS = (
    "aggregate STRING NOT NULL, version BIGINT NOT NULL, state_version INT NOT NULL, "
    "data STRING NOT NULL"
)
"""The state after the event `version`, which is in the same commit as the snapshot."""


def events_topic(domain: str, partitions: int) -> Topic:
    """The topic of a domain's events."""
    settings = TopicSettings(index="tags")
    return Topic(f"{domain}.events", partitions, parse_schema(EVENTS), "aggregate", "at", settings)


def has_events(topic: Topic) -> bool:
    """True for a topic of a domain's events, to which only commands may add."""
    return topic.settings.index == "tags" and topic.schema == parse_schema(EVENTS)


def commands_topic(domain: str, partitions: int) -> Topic:
    """The topic of a domain's commands, also of those that were refused."""
    settings = TopicSettings(index="tags")
    return Topic(
        f"{domain}.commands", partitions, parse_schema(COMMANDS), "aggregate", "at", settings
    )


def snapshots_topic(domain: str, partitions: int) -> Topic:
    """The topic of a domain's snapshots: the last of each aggregate stays."""
    settings = TopicSettings(index="aggregate", cleanup="compact")
    return Topic(
        f"{domain}.snapshots", partitions, parse_schema(SNAPSHOTS), "aggregate", None, settings
    )


STATES = (
    "instance STRING NOT NULL, state_version INT, data STRING, "
    "timeouts MAP<STRING, TIMESTAMP>, read BIGINT, sent BIGINT"
)
"""The state of each instance of a process and its time-outs. The row whose `instance` is empty has
the process's position: all up to the commit `read` was handled, and the commands up to `sent`."""

SENT = (
    "id STRING NOT NULL, instance STRING NOT NULL, cause STRING NOT NULL, "
    "aggregate STRING NOT NULL, type STRING NOT NULL, schema INT NOT NULL, at TIMESTAMP NOT NULL, "
    "metadata MAP<STRING, STRING>, data STRING NOT NULL"
)
"""The commands that a process has issued. `cause` is the id of the event that an instance reacted
to, or names the time-out or the refused command."""


def states_topic(domain: str, process: str) -> Topic:
    """The topic of the states of a process: the last of each instance stays."""
    settings = TopicSettings(index="instance", cleanup="compact")
    return Topic(f"{domain}.{process}.states", 1, parse_schema(STATES), "instance", None, settings)


def sent_topic(domain: str, process: str) -> Topic:
    """The topic of the commands that a process has issued."""
    settings = TopicSettings(index="instance")
    return Topic(f"{domain}.{process}.sent", 1, parse_schema(SENT), "instance", "at", settings)
