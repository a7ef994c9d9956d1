"""Steps that only publish to a topic on Kafka: the tasks that read rows write the results."""

from __future__ import annotations

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.log.kafka.log import KafkaLog
from headrace.pipeline.stream import Source
from headrace.plan import metadata
from headrace.plan.batch import Payload, Rows, Sink
from headrace.plan.compile import Compiler
from headrace.plan.python_operators import map_in_arrow
from headrace.plan.source_options import BatchLimits
from headrace.runtime.frames import Frames
from headrace.runtime.kafka.outlet import DELIVERED, Outlet


class DeliveryFrames(Frames):
    """The frames of a step whose results bypass the store. Each task has rows of one partition."""

    def results(self, batch: DataFrame, sink: Sink, commit: int) -> Payload:
        assert isinstance(self._log, KafkaLog)
        (topic,) = self._step.outputs
        writer = f"{self._step.app}.{sink.generation}.{self._step.name}"
        outlet = Outlet(self._log.address, topic, writer, commit)
        counts = map_in_arrow(batch, outlet, DELIVERED).toArrow()
        rows = pc.sum(counts.column("rows")).as_py() or 0
        return Rows(self.plan.shapes.rows.empty_table(), rows)

    def _streamed(self, compiler: Compiler) -> DataFrame:
        made = self._step.computed
        columns = (*made.columns, metadata.TOPIC, metadata.PARTITION, metadata.OFFSET)
        return compiler.rows(made).select(*(F.col(f"`{n}`") for n in columns))

    def _load_stream(self, source: Source, sink: Sink, batch_limits: BatchLimits) -> DataFrame:
        rows = super()._load_stream(source, sink, batch_limits)
        return rows.withColumn(metadata.TOPIC, F.lit(source.topic.name))

    def _of_rows(self) -> tuple[str, ...]:
        return (metadata.COMMIT, metadata.PARTITION, metadata.OFFSET)
