"""Write rows of Spark to a topic of the embedded log, from a batch job or a stream.

    frame.write.format("headrace").option("log", "file:./data").option("topic", "orders")

Tasks stage their rows in files beside the log, and the driver appends them when all tasks are done.
So a job that fails writes nothing. A batch of a stream is one commit with a sequence number. After
a crash the batch comes again under the same number, so it is written exactly once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlparse

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.clock import SECOND, SystemClock
from headrace.errors import InvalidSetting, TransactionTooLarge, UnknownColumn
from headrace.log import Log, open_log
from headrace.plan.source_options import check_options
from headrace.runtime.checkpoint import Checkpoint

_SPARKS = {"path", "checkpointlocation", "queryname"}
_STAGING = "staging"
_ABANDONED = 24 * 3600 * SECOND
"""The age at which a staged file is an orphan."""


@dataclass(frozen=True)
class Target:
    """The topic to write to."""

    log: str
    topic: str

    @staticmethod
    def from_options(options: Mapping[str, str]) -> Target:
        """Read the options that the user gave."""
        check_options("sink", options, {"log", "topic"}, _SPARKS)
        return Target(options["log"], options["topic"])

    def check(self, columns: StructType, *, overwrite: bool) -> None:
        """Raise unless rows with these columns can be appended to the topic."""
        if overwrite:
            raise InvalidSetting(
                "A log can be appended to, not overwritten", hint='Use .mode("append")'
            )
        with self.opened() as log:
            topic = log.topic(self.topic).topic
        if topic.schema is None:
            raise InvalidSetting(
                f"Topic {topic.name!r} holds raw bytes and takes no columns from Spark",
                hint="Create it with a schema",
            )
        for name in columns.names:
            if name not in topic.schema.names:
                raise UnknownColumn(
                    f"Topic {topic.name!r} has no column {name!r}",
                    hint=f"There are: {', '.join(topic.schema.names)}",
                )

    def opened(self) -> Log:
        return open_log(self.log, create=False)

    def staging(self) -> Path:
        """The folder of staged rows."""
        with self.opened() as log:
            folder = Path(log.url.removeprefix("file:")) / _STAGING
        folder.mkdir(exist_ok=True)
        return folder


@dataclass
class Staged(WriterCommitMessage):
    """The staged rows of one task. Without rows there is no file."""

    path: str
    rows: int


def stage(target: Target, rows: Iterator[pa.RecordBatch]) -> Staged:
    """Stage a task's rows in a file until all tasks are done."""
    path = target.staging() / f"{uuid.uuid4()}.arrow"
    count = 0
    with ExitStack() as stack:
        writer: pa.RecordBatchStreamWriter | None = None
        for batch in rows:
            if writer is None:
                writer = stack.enter_context(pa.ipc.new_stream(str(path), batch.schema))
            writer.write_batch(batch)
            count += batch.num_rows
    return Staged(str(path), count)


def staged_rows(messages: Sequence[WriterCommitMessage | None]) -> list[pa.Table]:
    """Read the staged rows of all tasks."""
    return [
        pa.ipc.open_stream(pa.memory_map(message.path)).read_all()
        for message in messages
        if isinstance(message, Staged) and message.rows
    ]


def forget(target: Target, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Remove the files of these tasks, and orphans of earlier ones."""
    for message in messages:
        if isinstance(message, Staged):
            Path(message.path).unlink(missing_ok=True)
    for file in target.staging().glob("*.arrow"):
        if file.stat().st_mtime * SECOND < SystemClock().now() - _ABANDONED:
            file.unlink(missing_ok=True)


class JobWriter(DataSourceArrowWriter):
    """Appends the rows of a job, in one or more commits."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(self._target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with self._target.opened() as log, log.producer() as producer:
            for rows in staged_rows(messages):
                producer.append(self._target.topic, rows)
        forget(self._target, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        forget(self._target, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each batch of a stream as one commit, exactly once."""

    def __init__(self, target: Target, checkpoint: str | None) -> None:
        if checkpoint is None:
            _needs_checkpoint()
        self._target = target
        self._path = Path(urlparse(checkpoint).path)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(self._target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tables, query = staged_rows(messages), Checkpoint(self._path).query_id
        if query is None:
            _needs_checkpoint()
        Checkpoint(self._path).sync_plan(batchId)
        with self._target.opened() as log, log.producer(id=f"spark-{query}") as producer:
            schema = log.topic(self._target.topic).topic.schema
            assert schema is not None
            rows = pa.concat_tables(tables) if tables else schema.empty_table()
            try:
                producer.append(self._target.topic, rows, sequence=batchId)
            except TransactionTooLarge as error:
                raise TransactionTooLarge(
                    f"Batch {batchId} has {rows.nbytes:,} bytes: too many for one commit",
                    hint="Let the stream read smaller batches, as with the option max_rows",
                ) from error
        forget(self._target, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        forget(self._target, messages)


def _needs_checkpoint() -> NoReturn:
    raise InvalidSetting(
        "A stream into the log needs a checkpoint in a local folder",
        hint='.option("checkpointLocation", "./checkpoint")',
    )
