"""Rows that a step of the stream itself refuses, such as events that cannot be read.

Spark drops such rows and counts the commits between which they are. They are read again here, in
plain Python, which finds the same ones and says why: else the law does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.clock import to_datetime
from headrace.log import Batch, Commit, Log, Topic
from headrace.log.dead_letter import dead_letters, row_text
from headrace.pipeline.stream import RowStep, Source, Stream
from headrace.plan.counters import Counters
from headrace.plan.log_rows import chosen, in_time
from headrace.plan.position import Commits
from headrace.plan.uncounted import Uncounted
from headrace.schema.python_rows import to_rows

Judge = RowStep | None


def with_refused(
    log: Log,
    step: str,
    stream: Stream,
    uncounted: Mapping[str, Uncounted],
    counters: Counters,
    observed: Mapping[str, int],
) -> dict[str, Uncounted]:
    """The uncounted rows of each topic, with those that Spark saw a step refuse."""
    first = [observed[name] for name in counters.dead_from if observed[name]]
    last = [observed[name] for name in counters.dead_upto if observed[name]]
    found = dict(uncounted)
    if not first:
        return found
    by_topic: dict[str, tuple[Topic, list[Judge]]] = {}
    for source, judge in _judges(stream):
        by_topic.setdefault(source.topic.name, (source.topic, []))[1].append(judge)
    for name, (topic, judges) in by_topic.items():
        if any(judges):
            found[name] = _refused(log, step, topic, judges, (min(first), max(last)), found[name])
    return found


def judges_rows(stream: Stream) -> bool:
    """True if a step of a stream refuses rows."""
    return any(judge is not None for _, judge in _judges(stream))


def _judges(stream: Stream, judge: Judge = None) -> Iterator[tuple[Source, Judge]]:
    """Each path from a topic to a stream, with the step on it that refuses rows."""
    if isinstance(stream, Source):
        yield stream, judge
        return
    if isinstance(stream, RowStep) and stream.judges_rows:
        judge = stream
    for part in stream.upstream:
        yield from _judges(part, judge)


def _refused(
    log: Log, step: str, topic: Topic, judges: list[Judge], span: tuple[int, int], known: Uncounted
) -> Uncounted:
    letters, unevenly = [], 0
    commits = Commits(log, topic.name)
    first, last = Commit(span[0] - 1), Commit(span[1])
    for batch in log.read(topic.name, start=first, stop=last, judged=True):
        batch = chosen(batch, in_time(batch, topic, commits))
        rows = to_rows(batch.data)
        reasons = [[judge.refusal(row) if judge else None for judge in judges] for row in rows]
        dead = np.array([any(said) for said in reasons], np.bool_)
        if not dead.any():
            continue
        why = [next(filter(None, said)) for said in reasons if any(said)]
        letters.append(_letters(step, topic, chosen(batch, dead), why))
        unevenly += sum(said.count(None) for said in reasons if any(said))
    return replace(known, dead=[*known.dead, *letters], unevenly=known.unevenly + unevenly)


def _letters(step: str, topic: Topic, batch: Batch, reasons: list[str]) -> pa.Table:
    return dead_letters(
        len(batch),
        step=step,
        topic=topic.name,
        partition=batch.partition,
        offset=batch.offsets,
        commit_number=batch.commit,
        appended=to_datetime(batch.timestamp),
        reason=reasons,
        row=[row_text(row) for row in to_rows(batch.data)],
    )
