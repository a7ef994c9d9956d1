"""The newest rows of a topic, few enough to examine in a moment."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.log.interface import Capability, Log
from headrace.log.position import Commit, Offset
from headrace.log.record import Batch
from headrace.log.state import Topic, TopicCommit
from headrace.schema.python_rows import to_values
from headrace.wording import many

ROWS = 100_000
_BYTES = 64 << 20
_COMMITS = 20_000


@dataclass(frozen=True)
class Sample:
    """The last rows of a topic and their commits, which a log on Kafka does not have."""

    topic: Topic
    total: int
    """The number of rows in the topic."""
    commits: tuple[TopicCommit, ...]
    batches: tuple[Batch, ...]

    @property
    def rows(self) -> int:
        return sum(len(batch) for batch in self.batches)

    @property
    def text(self) -> str:
        """A description of the rows."""
        rows = self.rows
        if rows >= self.total:
            return f"all {many(rows, 'row')}"
        return f"the newest {rows:,} of {self.total:,} rows"

    def table(self) -> pa.Table:
        """The rows except tombstones: the topic's columns, and the commit of each row."""
        parts = []
        for batch in self.batches:
            data = batch.data.append_column("_commit", pa.repeat(batch.commit, len(batch)))
            keep = None if batch.tombstones is None else pa.array(~batch.tombstones)
            parts.append(data if keep is None else data.filter(keep))
        return pa.Table.from_batches(parts) if parts else pa.table({})

    def __str__(self) -> str:
        return f"{self.text} of topic {self.topic.name}, in {many(len(self.commits), 'commit')}"


def newest(log: Log, name: str, rows: int = ROWS) -> Sample:
    """The last whole commits of a topic, with at most `rows` rows or 64 MiB.

    If nobody has made commits of it yet, as may be on Kafka, the last rows of each partition.
    """
    state = log.topic(name)
    if state.bytes:
        rows = min(rows, max(1, state.records * _BYTES // state.bytes))
    commits = _last(log, name, rows)
    if not commits and Capability.NUMBERED_APPENDS not in log.capabilities:
        share = -(-rows // len(state.partitions))
        found = [
            batch
            for part in state.partitions
            for batch in log.read(
                name,
                start=Offset(max(part.first, part.end - share)),
                stop=Offset(part.end),
                partitions=[part.partition],
            )
        ]
        return Sample(state.topic, state.records, (), tuple(found))
    batches = tuple(
        log.read(name, start=Commit(commits[0].number - 1), stop=Commit(commits[-1].number))
        if commits
        else ()
    )
    return Sample(state.topic, state.records, commits, batches)


def _last(log: Log, name: str, rows: int) -> tuple[TopicCommit, ...]:
    head, back = log.head(), 1_024
    while True:
        after = max(0, head - back)
        page = log.commits(name, after, back)
        if not after or len(page) >= _COMMITS or sum(commit.rows for commit in page) >= rows:
            break
        back *= 4
    left, first = rows, len(page)
    while first and (page[first - 1].rows <= left or first == len(page)):
        first -= 1
        left -= page[first].rows
    return tuple(page[first:])


def hashable(table: pa.Table) -> pa.Table:
    """The same rows with nested values as text, since Arrow cannot group by those."""
    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [None if v is None else repr(v) for v in to_values(table.column(place))]
            table = table.set_column(place, field.name, pa.array(texts, pa.string()))
    return table
