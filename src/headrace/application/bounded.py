"""Compute an application once over rows that do not grow: files, or a range of the log.

result = run(app, over="history/*.parquet")
result.view("hits_per_minute")
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.application.memory_sink import MemorySink, published_in
from headrace.backfill.finding import find_files
from headrace.backfill.loading import Loaded, Loader
from headrace.errors import InvalidSetting, Unsupported
from headrace.log import DEFAULT_LOG, Log, open_log
from headrace.log.dead_letter import DEAD_LETTER
from headrace.operators.registry import operator_of
from headrace.pipeline.app import App
from headrace.pipeline.chains import Part
from headrace.plan.law import Law
from headrace.plan.plans import Job, RoundPlan
from headrace.plan.position import commit_by, position_at
from headrace.plan.steps import Step, check_topics, inputs_of, prepare_topics, steps_of
from headrace.runtime.bounded import compute
from headrace.runtime.cluster import require_local
from headrace.runtime.rounds import Rounds
from headrace.runtime.session import SparkSettings, spark_session
from headrace.store import open_views
from headrace.store.location import checkpoint_of, database_of
from headrace.store.sqlite.database import Database

__all__ = ["BatchResult", "LogRange"]


@dataclass(frozen=True)
class LogRange:
    """The commits of a log after one and up to another, each by number or by time.

    By default, from the beginning to the newest.
    """

    after: datetime | int | None = None
    until: datetime | int | None = None


_LOOK = 0.25

Files = str | Path | Sequence[str | Path]
"""A file, a folder or a pattern, or several of them."""

Over = LogRange | Files | Mapping[str, Files]
"""A range of the log; files, if the application reads one topic; or files by topic."""


@dataclass(frozen=True)
class BatchResult:
    """The results of an application over rows that do not grow, as Arrow tables in memory."""

    _views: Mapping[str, pa.Table]
    _topics: Mapping[str, pa.Table]
    _late: Mapping[str, pa.Table]
    laws: Mapping[str, Law]
    """The account of all rows, by step."""
    dead: pa.Table
    """The dead letters of all steps."""

    def view(self, name: str) -> pa.Table:
        """The rows of a view, by key."""
        return _named(self._views, name, "view")

    def topic(self, name: str) -> pa.Table:
        """The rows that the application publishes to a topic. One batch emits each window once."""
        return _named(self._topics, name, "published topic")

    def late(self, step: str) -> pa.Table:
        """The late rows of a step, which has the name of its view or else of its topic."""
        return _named(self._late, step, "step")


def compute_over(
    app: App,
    log: str | Log | None,
    over: Over,
    *,
    spark: SparkSession | None = None,
    settings: SparkSettings | None = None,
) -> BatchResult:
    """Compute an application over rows that do not grow. Nothing is stored in the log.

    The results are those of a run over the same rows in the log, late rows included. Files count as
    if `headrace produce --file` had loaded them into an empty log, topic by topic in the given
    order; for that they are copied to a temporary folder.
    """
    steps = steps_of(app)
    for step in steps:
        _check(app, step)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-")))
        if isinstance(over, LogRange):
            where = log or app.log or DEFAULT_LOG
            opened = (
                where
                if isinstance(where, Log)
                else stack.enter_context(open_log(where, create=False))
            )
            for step in steps:
                check_topics(opened, step)
            opened.cut({topic for step in steps for topic in step.topics})
        else:
            files = _by_topic(app, steps, over)
            opened = stack.enter_context(open_log(f"file:{folder / 'log'}"))
            for step in steps:
                prepare_topics(opened, step)
            _load(opened, files)
            over = LogRange()
        spark = spark or spark_session(settings, log_file=folder / "spark.log")
        require_local(spark, opened.url)
        return _Batch(app, steps, opened, over, spark, folder).result()


def _check(app: App, step: Step) -> None:
    """Raise if a step cannot be computed in one batch."""
    for source in inputs_of(step):
        if isinstance(source, Part) or source.topic.name in app.outputs:
            raise Unsupported(
                f"Step {step.name!r} reads topic {source.topic.name!r}, which another step writes, "
                "and a batch writes to no topic",
                hint=f"Run it on a log: hr.run(app). See {step.stream.where}",
            )
    if (reason := operator_of(step.stream).refuses_batch(step.stream)) is not None:
        raise Unsupported(
            f"Step {step.name!r} cannot be computed in one batch: {reason}",
            hint="Load the files with headrace produce --file, and run the application on the log. "
            f"See {step.stream.where}",
        )


def _by_topic(
    app: App, steps: Sequence[Step], over: Files | Mapping[str, Files]
) -> Mapping[str, Files]:
    """The files of each topic."""
    topics = list(dict.fromkeys(s.topic.name for step in steps for s in inputs_of(step)))
    if not isinstance(over, Mapping):
        if len(topics) > 1:
            raise InvalidSetting(
                f"Application {app.name!r} reads {len(topics)} topics, so each needs its files",
                hint="Write over={" + ", ".join(f"{t!r}: ..." for t in topics) + "}",
            )
        return {topics[0]: over}
    for name in over:
        if name not in topics:
            raise InvalidSetting(
                f"Application {app.name!r} reads no topic {name!r}",
                hint=f"It reads: {', '.join(topics)}",
            )
    if missing := [topic for topic in topics if topic not in over]:
        raise InvalidSetting(
            f"There are no files for topic {missing[0]!r}, which {app.name!r} reads",
            hint=f"Add {missing[0]!r} to over={{...}}; an empty .csv file has no rows",
        )
    return over


def _load(log: Log, files: Mapping[str, Files]) -> None:
    for topic, wanted in files.items():
        loader = Loader(log, topic, acks="written")
        several = [wanted] if isinstance(wanted, str | Path) else wanted
        for file in find_files(map(str, several)):
            for _ in loader.load(Loaded(file)):
                pass


class _Batch:
    """One computation of an application, in a temporary folder."""

    def __init__(
        self,
        app: App,
        steps: Sequence[Step],
        log: Log,
        over: LogRange,
        spark: SparkSession,
        folder: Path,
    ) -> None:
        self._app = app
        self._steps = steps
        self._log = log
        self._spark = spark
        self._home = f"file:{folder}"
        self._after = 0 if over.after is None else commit_by(log, over.after)
        self._until = log.head() if over.until is None else commit_by(log, over.until)

    def result(self) -> BatchResult:
        """Compute all steps."""
        database = Database(database_of(self._home, self._app.name), self._app.name)
        with contextlib.closing(database):
            sinks = {step.name: self._compute(step, database) for step in self._steps}
            with database.reading() as db:
                topics = published_in(db)
        with open_views(self._home, app=self._app.name) as views:
            tables = {name: views.to_arrow(name) for name in self._app.views}
        late = {name: sink.late for name, sink in sinks.items() if sink.late is not None}
        dead = [letters for sink in sinks.values() for letters in sink.dead]
        return BatchResult(
            tables,
            {name: topics[name] for name in self._app.outputs if name in topics},
            late,
            {name: sink.law for name, sink in sinks.items()},
            pa.concat_tables([DEAD_LETTER.empty_table(), *dead]),
        )

    def _compute(self, step: Step, database: Database) -> MemorySink:
        checkpoint = checkpoint_of(self._home, step.app, step.name)
        job = Job(self._spark, self._log, step, checkpoint)
        plan = operator_of(step.stream).plan(job)
        sink = MemorySink(database, self._log, step, plan.shapes, self._after, self._until)
        if not isinstance(plan, RoundPlan):
            end = {t: position_at(self._log, t, self._until) for t in step.topics}
            compute(job, plan, sink, end)
            return sink
        if self._after:
            raise Unsupported(
                f"Step {step.name!r} keeps tables or duplicates, so it needs the log from its "
                "beginning",
                hint=f"Leave out LogRange(after=...). See {step.stream.where}",
            )
        rounds = Rounds(job, plan)
        try:
            rounds.start(sink, until_caught_up=True)
            while not rounds.wait(_LOOK):
                pass
        finally:
            rounds.stop()
        return sink


def _named(found: Mapping[str, pa.Table], name: str, what: str) -> pa.Table:
    if name not in found:
        raise InvalidSetting(
            f"There is no {what} {name!r} in the result", hint=f"There are: {', '.join(found)}"
        )
    return found[name]
