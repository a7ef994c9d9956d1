"""A durable event log, and event streams on Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    """Load Arrow when something of it is used: `headrace --help` need not wait for it."""
    if name in __all__:
        return getattr(importlib.import_module("headrace.log"), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
