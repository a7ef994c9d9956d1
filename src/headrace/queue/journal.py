"""The topics beside a queue: its journal of settlements, and its dead letters.

A settlement's line is committed together with the settlement, so the journal and the queue agree at
every commit, and the queue's state at any past commit can be counted from it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.clock import to_micros
from headrace.log.dead_letter import bytes_text, dead_letters, row_text
from headrace.log.queueing import QueueRow
from headrace.queue.contract import Message, Settlement

JOURNAL = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("end", pa.int64()),
        ("outcome", pa.string()),
        ("deliveries", pa.int32()),
        ("reason", pa.string()),
        ("worker", pa.string()),
        ("token", pa.int64()),
    ]
)
"""The columns of a journal: a line is about the messages from `offset` up to `end`."""


def journal_rows(worker: str, settlements: Sequence[Settlement]) -> pa.RecordBatch:
    """The journal's lines of settlements."""
    messages = [settlement.message for settlement in settlements]
    count = len(messages)
    columns: list[list[object]] = [
        [m.partition for m in messages],
        [m.offset for m in messages],
        [m.offset + 1 for m in messages],
        [s.outcome.value for s in settlements],
        [m.deliveries for m in messages],
        [s.reason or None for s in settlements],
        [worker] * count,
        [m.token for m in messages],
    ]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, JOURNAL, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=JOURNAL)


def letters(row: QueueRow, dead: Sequence[Settlement]) -> pa.Table:
    """Dead letters of messages, of the same shape as those of pipelines."""
    messages = [settlement.message for settlement in dead]
    return dead_letters(
        len(messages),
        step=f"queue {row.name}",
        topic=row.topic,
        partition=[m.partition for m in messages],
        offset=[m.offset for m in messages],
        commit_number=[m.commit for m in messages],
        appended=[to_micros(m.timestamp) for m in messages],
        reason=[settlement.reason for settlement in dead],
        row=[_text(message) for message in messages],
    )


def _text(message: Message) -> str | None:
    value = message.value
    if isinstance(value, bytes):
        return bytes_text(value, readable=True)
    return None if value is None else row_text(value)
