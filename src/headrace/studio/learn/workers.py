"""Workers that store results and a position in SQLite, in three orders, and may crash anywhere."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

from headrace.sqlite import connect


@dataclass(frozen=True)
class BatchStep:
    """One step of a batch. `point` is headrace's crash point after such a step."""

    name: str
    does: str
    point: str = ""


@dataclass(frozen=True)
class Guarantee:
    """A delivery guarantee: the order of a batch's steps."""

    name: str
    steps: tuple[BatchStep, ...]

    @property
    def transaction(self) -> bool:
        return self.steps[-1].name == "commit"


_READ = BatchStep("read", "read the batch", "batch began")
_COMPUTE = BatchStep("compute", "compute the results", "computed")
_RESULTS = BatchStep("results", "store the results")
_POSITION = BatchStep("position", "store the position")
_END = BatchStep("end", "end the batch")

GUARANTEES = (
    Guarantee("at most once", (_READ, _POSITION, _COMPUTE, _RESULTS, _END)),
    Guarantee("at least once", (_READ, _COMPUTE, _RESULTS, _POSITION, _END)),
    Guarantee(
        "exactly once",
        (
            _READ,
            _COMPUTE,
            BatchStep("results", "begin, and store the results", "stored outputs"),
            BatchStep("position", "store the position too", "before commit"),
            BatchStep("commit", "commit both", "committed"),
        ),
    ),
)
STEPS = 5
"""The number of steps of a batch, the same for all."""


@dataclass(frozen=True)
class Seen:
    """A worker and its store after a step, as another connection sees the store."""

    phase: int
    """Steps of the batch that are done."""
    batch: tuple[int, ...]
    """The events in memory."""
    pending: tuple[int, ...]
    """The events whose results are in an open transaction."""
    counts: tuple[int, ...]
    """The rows of each event in the results."""
    position: int
    idle: bool

    @property
    def lost(self) -> tuple[int, ...]:
        """Events that nothing will bring back: before the position, without a result."""
        return tuple(
            number
            for number in range(self.position)
            if not self.counts[number] and number not in self.batch
        )

    @property
    def twice(self) -> int:
        """Rows of results beyond the first of their event."""
        return sum(count - 1 for count in self.counts if count > 1)


def worked(
    events: Sequence[int], *, size: int, upsert: bool, crashes: frozenset[int]
) -> tuple[tuple[Seen, ...], ...]:
    """Workers of all guarantees after each step, until all have read everything.

    `crashes` are the numbers of steps after which all of them crash.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder, contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(
                contextlib.closing(
                    _Worker(Path(folder) / f"{place}.db", guarantee, events, size, upsert)
                )
            )
            for place, guarantee in enumerate(GUARANTEES)
        ]
        found = [tuple(worker.seen() for worker in workers)]
        while not all(each.idle for each in found[-1]):
            for worker in workers:
                if len(found) - 1 in crashes:
                    worker.crash()
                else:
                    worker.go_on()
            found.append(tuple(worker.seen() for worker in workers))
    return tuple(found)


class _Worker:
    """A worker, and its store: what a crash takes away, and what it leaves."""

    def __init__(
        self, path: Path, guarantee: Guarantee, events: Sequence[int], size: int, upsert: bool
    ) -> None:
        self._path, self._guarantee, self._events, self._size = path, guarantee, events, size
        self._store = _connected(path)
        # Another connection sees what is committed, and nothing else.
        self._reader = _connected(path)
        key = "INTEGER PRIMARY KEY" if upsert else "INTEGER"
        self._store.execute(
            f"CREATE TABLE results (event {key}, value INTEGER);"
            "CREATE TABLE position (next INTEGER); INSERT INTO position VALUES (0)"
        )
        self._forget()

    def _forget(self) -> None:
        self._phase = 0
        self._batch: tuple[int, ...] = ()
        self._results: list[tuple[int, int]] = []
        self._idle = False

    def close(self) -> None:
        self._store.close()
        self._reader.close()

    def crash(self) -> None:
        """Lose everything in memory, and the transaction that is open; start again."""
        self._store.close()
        self._store = _connected(self._path)
        self._forget()

    def go_on(self) -> None:
        """Do the next step of the batch."""
        if self._phase == STEPS:
            self._forget()
        match self._guarantee.steps[self._phase].name:
            case "read":
                start = _position(self._store)
                self._batch = tuple(range(start, min(start + self._size, len(self._events))))
                self._idle = not self._batch
                if self._idle:
                    return
            case "compute":
                self._results = [(number, self._events[number]) for number in self._batch]
            case "results":
                if self._guarantee.transaction:
                    self._store.execute("BEGIN IMMEDIATE")
                self._store.executemany(
                    "INSERT OR REPLACE INTO results VALUES (?, ?)", self._results
                )
            case "position":
                self._store.execute("UPDATE position SET next = next + ?", (len(self._batch),))
            case "commit":
                self._store.execute("COMMIT")
        self._phase += 1

    def seen(self) -> Seen:
        """The worker, and its store as others see it."""
        counts = [0] * len(self._events)
        for event, rows in self._reader.execute(
            "SELECT event, count(*) FROM results GROUP BY event"
        ):
            counts[int(str(event))] = int(str(rows))
        ended = self._phase == STEPS
        return Seen(
            self._phase,
            () if ended else self._batch,
            self._batch if self._store.in_transaction else (),
            tuple(counts),
            _position(self._reader),
            self._idle,
        )


def _position(db: apsw.Connection) -> int:
    return int(str(db.execute("SELECT next FROM position").get))


def _connected(path: Path) -> apsw.Connection:
    db = connect(str(path), 1.0)
    # A process dies here, not the machine: nothing needs to be synced.
    db.execute("PRAGMA synchronous=OFF; PRAGMA journal_mode=WAL")
    return db
