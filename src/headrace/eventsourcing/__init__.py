"""Event sourcing: commands are decided, and the events that follow are the truth.

Events live in a topic, forever. A user writes two pure functions for each aggregate, `decide` and
`evolve`, on frozen dataclasses. Handling a command is one commit with a condition, so two writers
never both win. None of this needs Spark; read models are pipelines over the same topic.
"""

from headrace.eventsourcing.answers import Handled, Refused
from headrace.eventsourcing.boundary import Addressed, Decision, decision, match, to
from headrace.eventsourcing.declare import (
    Aggregate,
    CommandType,
    EventType,
    Refusal,
    aggregate,
    command,
    event,
    refuse,
)
from headrace.eventsourcing.domain import Domain
from headrace.eventsourcing.forgotten import Forgotten
from headrace.eventsourcing.hidden import hidden
from headrace.eventsourcing.history import Change
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.loading import Loaded
from headrace.eventsourcing.personal import FORGOTTEN, SEALED
from headrace.eventsourcing.processes.actions import (
    Cancel,
    CommandRefused,
    Send,
    TimedOut,
    Timeout,
    cancel,
    send,
    send_across,
    timeout,
)
from headrace.eventsourcing.processes.declare import Process, process
from headrace.eventsourcing.processes.runner import Runner
from headrace.eventsourcing.store import Store
from headrace.eventsourcing.stored import StoredCommand, StoredEvent
from headrace.eventsourcing.upcast import default, drop, merge, rename, retype, split, upcast
from headrace.eventsourcing.what_if import Difference

__all__ = [
    "FORGOTTEN", "SEALED", "Addressed", "Aggregate", "Cancel", "Change", "CommandRefused",
    "CommandType", "Decision", "Difference", "Domain", "EventType", "Forgotten", "Handled",
    "KeyStore", "Loaded", "Process", "Refusal", "Refused", "Runner", "Send", "Store",
    "StoredCommand", "StoredEvent", "TimedOut", "Timeout", "aggregate", "cancel", "command",
    "decision", "default", "drop", "event", "hidden", "match", "merge", "process", "refuse",
    "rename", "retype", "send", "send_across", "split", "timeout", "to", "upcast",
]  # fmt: skip
