"""Operations on a queue as a whole: redrive, purge, seek, and its state at a past commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPosition, LeaseLost
from headrace.log.position import LATEST, Commit, Latest, Offset, Position, Time
from headrace.log.queueing import DeadMessage, Outcome
from headrace.log.roles import CommitPart
from headrace.queue.contract import QueueCapability, WorkQueue, lacks
from headrace.queue.journal import JOURNAL
from headrace.queue.log_queue import LogQueue

_AT_ONCE = 10_000


@dataclass(frozen=True)
class PastState:
    """The messages of a queue at a commit or a time. Those acquired then are among the waiting.

    `outcomes` counts the lines of its journal up to then.
    """

    name: str
    at: Commit | Time
    waiting: int
    dead: int
    outcomes: Mapping[str, int]


def redrive(
    queue: WorkQueue,
    *,
    reason: str | None = None,
    upto: Position = LATEST,
    limit: int | None = None,
) -> int:
    """Let dead letters wait again, as if they were new, and return their number.

    By default all that are dead when it begins; or those whose reason has a text in it, and those
    that were made up to a commit or a time. The messages are still in the topic, so nothing is
    copied.
    """
    queue = _kept(queue, QueueCapability.REDRIVE)
    done = 0
    commit = _commit(queue, upto)
    while limit is None or done < limit:
        most = _AT_ONCE if limit is None else min(_AT_ONCE, limit - done)
        some = queue.log.queues().dead(queue.row, reason, commit, most)
        if not some:
            break
        part = queue.log.queues().redriving(queue.row, some)
        try:
            _commit_with(queue, [_line(queue, each) for each in some], part)
        except LeaseLost:
            continue  # another process was faster with some of them
        done += len(some)
    return done


def purge(queue: WorkQueue) -> int:
    """Remove every message that is not finished, acquired ones too, and return their number."""
    return _seek(_kept(queue, QueueCapability.PAST_STATES), LATEST, Outcome.PURGED)


def seek(queue: WorkQueue, position: Position) -> int:
    """Let exactly the messages from a position on wait, and return how many waited before.

    Messages that are acquired lose their lease. Seeking back plays the history again.
    """
    return _seek(_kept(queue, QueueCapability.PAST_STATES), position, Outcome.SOUGHT)


def _seek(queue: LogQueue, position: Position, outcome: Outcome) -> int:
    log, topic = queue.log, queue.row.topic
    before = queue.state().unfinished
    partitions = range(log.topic(topic).topic.partitions)
    offsets = {p: log.offset_at(topic, p, position) for p in partitions}
    lines: list[dict[str, object]] = [
        {"partition": p, "offset": offset, "end": offset, "outcome": outcome.value,
         "worker": queue.worker}
        for p, offset in offsets.items()
    ]  # fmt: skip
    _commit_with(queue, lines, log.queues().seeking(queue.row, offsets))
    return before


def state_at(queue: WorkQueue, position: Position) -> PastState:
    """The state of a queue after a commit, or at a time, from its topic and its journal."""
    queue = _kept(queue, QueueCapability.PAST_STATES)
    log, topic = queue.log, queue.row.topic
    if not isinstance(position, Commit | Time):
        position = Commit(log.head())
    outcomes: Counter[str] = Counter()
    starts: Counter[int] = Counter()
    finished: Counter[int] = Counter()
    dead: set[tuple[int, int]] = set()
    for batch in log.read(queue.row.journal, stop=position):
        outcome = batch.data.column("outcome")
        accepted = pc.equal(outcome, Outcome.ACCEPTED.value)
        partitions = batch.data.column("partition").filter(accepted)
        finished.update(partitions.to_pylist())
        outcomes[Outcome.ACCEPTED.value] += len(partitions)
        for row in batch.data.filter(pc.invert(accepted)).to_pylist():
            partition, offset = row["partition"], row["offset"]
            outcomes[row["outcome"]] += 1
            match row["outcome"]:
                case Outcome.REJECTED | Outcome.DROPPED:
                    finished[partition] += 1
                    dead.add((partition, offset))
                case Outcome.REDRIVEN:
                    finished[partition] -= 1
                    dead.discard((partition, offset))
                case Outcome.CREATED | Outcome.SOUGHT | Outcome.PURGED:
                    # All before it is finished, and all from there on waits.
                    starts[partition], finished[partition] = offset, 0
                    first = 0 if row["outcome"] == Outcome.CREATED else offset
                    dead = {d for d in dead if d[0] != partition or d[1] < first}
    ends = {p: log.offset_at(topic, p, position) for p in range(log.topic(topic).topic.partitions)}
    waiting = sum(max(0, end - starts[p]) - finished[p] for p, end in ends.items())
    counts = {outcome: count for outcome, count in outcomes.items() if count}
    return PastState(queue.name, position, waiting, len(dead), counts)


def _kept(queue: WorkQueue, capability: QueueCapability) -> LogQueue:
    """The queue, if its state is in the log."""
    if not isinstance(queue, LogQueue):
        raise lacks(queue.name, capability)
    return queue


def _commit(queue: LogQueue, position: Position) -> int:
    """The last settlement up to a position, as a commit."""
    match position:
        case Latest():
            return queue.log.head()
        case Commit(number):
            return number
        case Time():
            end = queue.log.offset_at(queue.row.journal, 0, position)
            start = Offset(max(0, end - 1))
            batches = queue.log.read(queue.row.journal, start=start, stop=Offset(end))
            return max((batch.commit or 0 for batch in batches), default=0)
    raise InvalidPosition(
        f"{position} is not a moment of the whole log", hint="Use a commit or a time"
    )


def _line(queue: LogQueue, dead: DeadMessage) -> dict[str, object]:
    return {
        "partition": dead.partition,
        "offset": dead.offset,
        "end": dead.offset + 1,
        "outcome": Outcome.REDRIVEN.value,
        "deliveries": dead.deliveries,
        "reason": dead.reason,
        "worker": queue.worker,
    }


def _commit_with(queue: LogQueue, lines: list[dict[str, object]], part: CommitPart) -> None:
    """Commit a part with its lines in the journal."""
    with queue.log.producer() as producer, producer.transaction() as transaction:
        transaction.append(queue.row.journal, pa.Table.from_pylist(lines, schema=JOURNAL))
        transaction.attach(part)
