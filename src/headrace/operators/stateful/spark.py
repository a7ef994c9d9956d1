"""The plan of keyed state: rows are packed, and a worker visits each bucket."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.clock import micros
from headrace.errors import CrowdedKey, InvalidPipeline, PipelineError
from headrace.operators.stateful.bucket import PLACES, WATERMARK, Rules
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stateful.outcome import Outcome
from headrace.operators.stateful.spread import labels
from headrace.operators.stateful.user_call import Signature
from headrace.operators.stateful.workers import BUCKET, PACKED, REPORT, Pack, Site, Visitor
from headrace.pipeline.row_steps import splits, time_column
from headrace.pipeline.stream import sources
from headrace.plan import metadata
from headrace.plan.arrow_frames import arrow_schema
from headrace.plan.batch import Shapes, Sink
from headrace.plan.compile import Compiler
from headrace.plan.late_rows import late_rows, too_late
from headrace.plan.lateness import Closing
from headrace.plan.plans import Job, StreamPlan
from headrace.plan.python_operators import map_in_arrow, transform_with_state

SETTINGS = {
    # The only state store of Spark that supports user-defined state.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Rows go to Python in fewer and larger batches, and payloads a few at a time.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
}
"""Spark settings of a query with user-defined state."""

MOST_BYTES = 64 << 20
"""The limit of a bucket, which is written whole and copied several times in memory."""


class StatefulPlan(StreamPlan):
    """Keeps state in Spark's state store, in buckets that its Python workers visit."""

    settings = SETTINGS
    ticks = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        assert isinstance(job.step.stream, Stateful)
        self._step = step = job.step.stream
        self.closing = Closing.after(micros(step.delay))
        sketch = job.sketch()
        output = self._rules(sketch.rows(step.input)).signature.output
        self.shapes = Shapes(output, arrow_schema(self.late(sketch)))

    def streamed(self, compiler: Compiler) -> DataFrame:
        """The report of each bucket's visit."""
        job, rows = self.job, compiler.rows(self._step.input)
        rows = rows.where(~too_late(self._step.delay))
        rules = self._rules(rows)
        watermark = F.col(metadata.FRONTIER) - F.lit(micros(self._step.delay))
        made = {
            metadata.TIME: F.unix_micros(metadata.TIME),
            WATERMARK: F.greatest(watermark, F.lit(metadata.NO_FRONTIER)),
            metadata.INDEX: F.col(metadata.INDEX).cast("array<int>"),
        }
        keys = [F.col(f"`{key}`") for key in self._step.by]
        bucket = F.pmod(F.xxhash64(*keys), F.lit(self._step.buckets)).cast("int")
        # Every column costs on its way to Python, so the event time is sent only once.
        time = time_column(self._step.input)
        sent = [name for name in rules.order if name != metadata.TIME or time is None]
        chosen = rows.select(
            bucket.alias(BUCKET),
            *(F.col(f"`{name}`") for name in self._step.input.columns),
            *(made.get(name, F.col(name)).alias(name) for name in sent),
        )
        packed = map_in_arrow(chosen, Pack(rules.rows, self._step.buckets, time), PACKED)
        site = Site(
            job.log.url,
            str(job.checkpoint),
            str(job.staging),
            micros(self._step.delay),
            MOST_BYTES,
            tuple(job.log.settings.items()),
        )
        _by_value(self._step.function)
        return transform_with_state(packed, BUCKET, Visitor(rules, site), REPORT)

    def late(self, compiler: Compiler) -> DataFrame:
        rows = compiler.rows(self._step.input)
        return late_rows(rows, self._step.input.columns, self._step.delay)

    def results(self, batch: DataFrame, sink: Sink) -> Outcome:
        """The results of the buckets in a batch; raises if one of them failed."""
        Outcome(self.job.staging, (), (), 0, 0).remove()
        reports = sorted(batch.toArrow().to_pylist(), key=lambda row: int(row["bucket"]))
        for row in reports:
            if row["error"]:
                raise self._error(json.loads(row["error"]))
        return Outcome(
            self.job.staging,
            tuple(Path(row["output"]) for row in reports if row["output"]),
            tuple(Path(row["failures"]) for row in reports if row["failures"]),
            sum(row["taken"] for row in reports),
            sum(row["failed"] for row in reports),
            sum(row["state_rows"] for row in reports),
            sum(row["state_bytes"] for row in reports),
        )

    def _error(self, report: dict[str, Any]) -> PipelineError:
        name, step = self._step.identity[0], f"Step {self.job.step.name!r}"
        if "bytes" in report:
            size, most = report["bytes"] >> 20, MOST_BYTES >> 20
            bucket = labels(self._step.buckets).index(report["bucket"])
            much = (
                f"{step} has {size} MB of {report['what']} in bucket {bucket} of "
                f"{self._step.buckets}, in {report['rows']:,} rows: more than the limit of "
                f"{most} MB"
            )
            again = "This makes it another step, which is computed again from the log"
            if 2 * report["of_key"] > report["rows"] > 1:
                key = " and ".join(f"{name} = {value!r}" for name, value in report["key"].items())
                return CrowdedKey(
                    f"{much}. {report['of_key']:,} of them have one key, {key}",
                    hint="If the key is a placeholder, filter it out; else keep state by more "
                    f"columns, or use a shorter delay. {again}. See {self._step.where}",
                    key=report["key"],
                    rows=report["of_key"],
                )
            return PipelineError(much, hint=f"Use more buckets, or a shorter ttl or delay. {again}")
        at = f" at {report['where']}" if report["where"] else ""
        row = {k: v for k, v in report["row"].items() if k in self._step.input.columns}
        if row:
            of = [
                report["row"].get(n) for n in (metadata.PARTITION, metadata.OFFSET, metadata.COMMIT)
            ]
            about = f"for {report['rows']:,} rows from {row} on, at offset {of[1]} of partition "
            about += f"{of[0]}, commit {of[2]}"
        else:
            about = f"for the timer of {report['state']}"
        many = " and for many more keys" if report["many"] else ""
        return PipelineError(
            f"{step} failed in {name}{at}: {report['reason']}, {about}{many}",
            hint="Nothing of this batch was stored. With on_error='dead letter', such rows become "
            f"dead letters. See {self._step.where}",
            where=report["where"],
            row=row,
        )

    def _rules(self, rows: DataFrame) -> Rules:
        step = self._step
        own = rows.select(*(F.col(f"`{name}`") for name in step.input.columns))
        events = pa.schema(
            [field.with_nullable(True) for field in to_arrow_schema(own.schema, timezone="UTC")]
        )
        for key in step.by:
            check_key(key, events.field(key).type, step)
        topics = tuple(source.topic.name for source in sources(step))
        wanted = {
            WATERMARK: step.order == "arrival",
            metadata.TOPIC: len(topics) > 1,
            metadata.INDEX: splits(step.input),
        }
        order = [name for name in PLACES if wanted.get(name, True)]
        state = pa.schema([*(events.field(key) for key in step.by), *step.kept])
        return Rules(
            step.function,
            Signature(step.by, state, step.output_of(events)),
            events,
            tuple(order),
            step.order == "time",
            micros(step.ttl),
            step.on_error == "dead letter",
        )


plan = StatefulPlan


def check_key(name: str, kind: pa.DataType, step: Stateful) -> None:
    """Raise unless state can be kept by a column of this type."""
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        raise InvalidPipeline(
            f"State cannot be kept by {name!r}, which is {kind}",
            hint=f"Cast it to a string or an integer first. See {step.where}",
        )


def _by_value(function: Any) -> None:
    """Pickle a function by value, since workers may not find the module that declares it."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = function if hasattr(function, "__module__") else type(function)
    module = sys.modules.get(owner.__module__)
    ours = __name__.partition(".")[0]
    if module is not None and owner.__module__.partition(".")[0] not in (ours, "__main__"):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
