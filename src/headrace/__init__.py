"""A durable event log, and event streams on Spark."""

from headrace.log import (
    EARLIEST,
    LATEST,
    Batch,
    Capability,
    Commit,
    Consumer,
    Log,
    Offset,
    Producer,
    Receipt,
    Record,
    Time,
    Topic,
    TopicSettings,
    Transaction,
    open_log,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "Batch",
    "Capability",
    "Commit",
    "Consumer",
    "Log",
    "Offset",
    "Producer",
    "Receipt",
    "Record",
    "Time",
    "Topic",
    "TopicSettings",
    "Transaction",
    "open_log",
]
