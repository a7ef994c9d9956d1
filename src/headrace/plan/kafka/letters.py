"""Dead letters of a topic on Kafka, from the records that have no place in time."""

from __future__ import annotations

import pyarrow as pa

from headrace.log.dead_letter import bytes_text, dead_letters
from headrace.plan.kafka.decode import REASON, TEXT, UNREADABLE
from headrace.plan.steps import Step
from headrace.plan.uncounted import Uncounted


def letters(step: Step, topic: str, commit: int, records: pa.Table) -> Uncounted:
    """The letters of records that were left out. Those without a reason are tombstones."""
    dead = records.filter(records.column(REASON).is_valid())
    if not dead.num_rows:
        return Uncounted(tombstones=records.num_rows)
    told = zip(*(dead.column(name).to_pylist() for name in (REASON, "value", TEXT)), strict=True)
    found = dead_letters(
        dead.num_rows,
        step=step.name,
        topic=topic,
        partition=dead.column("partition"),
        offset=dead.column("offset"),
        commit_number=commit,
        appended=dead.column("timestamp"),
        reason=dead.column(REASON),
        row=[
            bytes_text(value, readable=reason != UNREADABLE)
            if reason == UNREADABLE or text is None
            else text
            for reason, value, text in told
        ],
    )
    return Uncounted(dead=[found], tombstones=records.num_rows - dead.num_rows)
