"""The log that stores events: topics, partitions and offsets.

Everything else in headrace is derived from the log and can be recomputed. `Log` is the interface;
`open_log` finds the implementation by URL.
"""

from headrace.log.address import DEFAULT_LOG, folder_of_log, open_log
from headrace.log.file.checking import check_log, log_ends, renew_checksums
from headrace.log.file.copying import copy_log, part_ways
from headrace.log.interface import Capability, Log
from headrace.log.matches import Match
from headrace.log.position import EARLIEST, LATEST, Commit, Offset, Position, Time, parse_position
from headrace.log.record import Batch, Header, OnceBy, Record, once_by
from headrace.log.roles import (
    Acks,
    CommitMode,
    CommitPart,
    Consumer,
    Delivery,
    Producer,
    Transaction,
)
from headrace.log.settings import TopicSettings
from headrace.log.state import (
    Ack,
    Flaw,
    GroupState,
    Lag,
    Member,
    PartitionState,
    Receipt,
    Tell,
    Topic,
    TopicCommit,
    TopicState,
    UpkeepReport,
)

__all__ = [
    "DEFAULT_LOG", "EARLIEST", "LATEST", "Ack", "Acks", "Batch", "Capability", "Commit",
    "CommitMode", "CommitPart", "Consumer", "Delivery", "Flaw", "GroupState", "Header", "Lag",
    "Log", "Match", "Member", "Offset", "OnceBy", "PartitionState", "Position", "Producer",
    "Receipt", "Record", "Tell", "Time", "Topic", "TopicCommit", "TopicSettings", "TopicState",
    "Transaction", "UpkeepReport",
    "check_log", "copy_log", "folder_of_log", "log_ends", "once_by", "open_log",
    "parse_position", "part_ways", "renew_checksums",
]  # fmt: skip
