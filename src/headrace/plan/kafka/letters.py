"""Dead letters of a topic on Kafka, from the records that have no place in time."""

from __future__ import annotations

import json

import pyarrow as pa

from headrace.plan.kafka.decode import REASON, TEXT, UNREADABLE
from headrace.plan.steps import Step
from headrace.plan.uncounted import DEAD_SCHEMA, Uncounted


def letters(step: Step, topic: str, commit: int, records: pa.Table) -> Uncounted:
    """What is to be told of records that were left out. Those without a reason are tombstones."""
    dead = records.filter(records.column(REASON).is_valid())
    count = dead.num_rows
    if not count:
        return Uncounted(tombstones=records.num_rows)
    told = pa.RecordBatch.from_pydict(
        {
            "step": [step.name] * count,
            "topic": [topic] * count,
            "partition": dead.column("partition").combine_chunks(),
            "offset": dead.column("offset").combine_chunks(),
            "commit_number": [commit] * count,
            "appended": dead.column("timestamp").combine_chunks(),
            "reason": dead.column(REASON).combine_chunks(),
            "row": [
                _told(value, text, read=reason != UNREADABLE)
                for reason, value, text in zip(
                    *(dead.column(name).to_pylist() for name in (REASON, "value", TEXT)),
                    strict=True,
                )
            ],
        },
        schema=DEAD_SCHEMA,
    )
    return Uncounted(dead=[told], tombstones=records.num_rows - count)


def _told(value: bytes, text: str | None, *, read: bool) -> str:
    """A row, or bytes that are none: as text if they are any, else in hex, so that none is lost."""
    if read and text is not None:
        return text
    try:
        return value.decode() if read else _object("value", value.decode())
    except UnicodeDecodeError:
        return _object("bytes", value.hex())


def _object(name: str, value: str) -> str:
    """An object of one value, written as Spark writes it."""
    return json.dumps({name: value}, ensure_ascii=False, separators=(",", ":"))
