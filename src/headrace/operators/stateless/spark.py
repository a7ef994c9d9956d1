"""The Spark plan of stateless steps: the compiler's frame and nothing else."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.pipeline.row_steps import Explode
from headrace.pipeline.stream import contains
from headrace.plan.arrow_frames import arrow_schema
from headrace.plan.batch import Rows, Shapes, Sink
from headrace.plan.compile import Compiler
from headrace.plan.plans import Job, StreamPlan
from headrace.plan.staging import stage


class RowPlan(StreamPlan):
    """Rows that are published as they arrive."""

    delivers = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.shapes = Shapes(arrow_schema(self.streamed(job.sketch())), None)
        self._may_be_many = contains(job.step.stream, Explode)

    def streamed(self, compiler: Compiler) -> DataFrame:
        stream = self.job.step.stream
        return compiler.rows(stream).select(*(F.col(f"`{name}`") for name in stream.columns))

    def results(self, batch: DataFrame, sink: Sink) -> Rows:
        if self._may_be_many:
            return Rows(stage(batch, self.job.staging, self.shapes.rows))
        return Rows(batch.toArrow().cast(self.shapes.rows))


plan = RowPlan
