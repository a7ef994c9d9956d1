"""A step over the rows between two positions at once: a batch of Spark, without a checkpoint.

It is the same plan as in a streaming query and the same sink, so its results are the stream's.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.plan.accounting import Account, law_of
from headrace.plan.batch import Payload, Sink, StepBatch
from headrace.plan.plans import Job, StreamPlan
from headrace.plan.position import Positions, behind, lowest_frontier, rows_by_topic
from headrace.plan.refused_rows import with_refused
from headrace.plan.uncounted import all_uncounted
from headrace.runtime.frames import Frames
from headrace.runtime.session import set_meanwhile
from headrace.runtime.streaming import failure_of

_SETTINGS = {"spark.sql.adaptive.enabled": "false"}
"""It would drop the counters of rows that turn out to be of no use, as in a join with nothing."""


def compute(job: Job, plan: StreamPlan, sink: Sink, end: Positions) -> None:
    """Compute a step from the sink's position to another, and store its results."""
    if not behind(sink.reached, end):
        return
    frames = Frames(job, plan)
    try:
        with set_meanwhile(job.spark, {**_SETTINGS, **plan.settings}):
            batch = _batch(job, frames, sink, end)
            sink.store(batch)
            batch.payload.remove()
    except (Py4JError, PySparkException) as error:
        raise failure_of(job.step.name, None, None, error) from error


def _batch(job: Job, frames: Frames, sink: Sink, end: Positions) -> StepBatch[Payload]:
    start, step, plan = sink.reached, job.step, frames.plan
    plan.check(start, end)
    with ThreadPoolExecutor(1, thread_name_prefix="headrace-uncounted") as beside:
        looking = beside.submit(
            all_uncounted, job.log, step.name, step.stream, start, end, plan.closing
        )
        frame, counters = frames.bounded(start, end)
        payload = plan.results(frame, sink)
        found = looking.result()
    observed = counters.values()
    uncounted = with_refused(job.log, step.name, step.stream, found, counters, observed)
    rows = rows_by_topic(job.log, start, end)
    late = frames.late(uncounted)
    account = Account(rows, uncounted, late, lowest_frontier(job.log, end))
    law = law_of(step.computed, account, counters, observed, plan.windows_per_row)
    taken = sum(observed[name] for name in counters.taken)
    return StepBatch(start, end, account.frontier, late, account.dead, law, payload, taken=taken)
