"""The capture of a database: its changes into the log, each transaction in one commit.

Each commit has whole transactions, or a piece of a snapshot, and the position in the source after
it. A crash at any point loses nothing and repeats nothing: the next capture fences out the last
one, and goes on at the position in the log.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headrace.cdc.catching_up import catch_up
from headrace.cdc.changes import Resolver, Written, by_table
from headrace.cdc.commits import Commits, Prepared
from headrace.cdc.contract import UNCHANGED, Change, Gap, Row, Source, SourceTransaction, Table
from headrace.cdc.encoding import Stamp
from headrace.cdc.outbox import Outbox, Router
from headrace.cdc.row_copy import RowCopy, TableChanges
from headrace.cdc.snapshots import Snapshots
from headrace.cdc.state import (
    Reached,
    ensure_state_topic,
    read_state,
)
from headrace.cdc.tables import Captured, CapturedTables
from headrace.clock import Clock, SystemClock
from headrace.closing import Closing
from headrace.errors import SourceError, SourceGap, UserError
from headrace.log import Log
from headrace.log.declared import check_name
from headrace.log.home import folder_of

SnapshotMode = Literal["initial", "never", "when_needed"]
"""As Debezium's: snapshot new tables, none, or also those that a gap has left behind."""

CrashPoint = Callable[[str], None]
"""Called with the name of each point at which a test lets the capture die."""

POINTS = ("chunk", "read", "resolved", "encoded", "committed", "copied", "acknowledged")

_HINT = (
    "Run the capture again with --heal: it compares the tables with their topics chunk by chunk, "
    "and writes only the rows that differ"
)


@dataclass(frozen=True)
class Limits:
    """The sizes of commits and chunks."""

    changes: int = 20_000
    """Changes of a commit. A transaction with more is written in parts."""
    bytes: int = 16 << 20
    chunk_rows: int = 50_000
    """Rows of the largest chunk. The first ones are smaller."""


class Capture(Closing):
    """One process that captures one source under one prefix. One thread uses it."""

    def __init__(
        self,
        source: Source,
        log: Log,
        prefix: str,
        *,
        snapshot: SnapshotMode = "initial",
        heal: bool = False,
        partitions: int = 1,
        outbox: Outbox | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        crash_point: CrashPoint = lambda point: None,
    ) -> None:
        self._source = source
        self._log = log
        self._prefix = check_name(prefix, "prefix")
        self._snapshot_mode = snapshot
        self._heals = heal or snapshot == "when_needed"
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._crash_point = crash_point
        router = None if outbox is None else Router(log, prefix, outbox, partitions)
        ensure_state_topic(log, prefix)
        # From here on an older capture cannot write, so what is read now stays true.
        self._producer = log.producer(id=f"cdc.{prefix}")
        self._copy = RowCopy(folder_of(log.home) / "cdc" / f"{prefix}.db", source.rows)
        try:
            self._start(partitions, router)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop. The source stays open: it belongs to the caller."""
        self._copy.close()
        self._producer.close()

    def _start(self, partitions: int, router: Router | None) -> None:
        source, log, prefix, copy = self._source, self._log, self._prefix, self._copy
        state = read_state(log, prefix)
        self.reached = state.reached
        self._position = state.reached.position
        self._skip = state.reached.done
        self._held: list[Change] = []
        source.attach()
        catch_up(log, prefix, source, copy, state)
        self._tables = CapturedTables(
            source,
            log,
            prefix,
            copy,
            state,
            partitions=partitions,
            snapshots=self._snapshot_mode != "never",
        )
        self._snapshots = Snapshots(source, copy, self._tables, self._limits.chunk_rows)
        self._commits = Commits(
            source,
            prefix,
            self._producer,
            copy,
            self._tables,
            Resolver(source, copy, self._snapshots),
            router,
            self._clock,
            self._crash_point,
        )
        if (gap := source.begin(self._position)) is not None:
            self._meet(gap)
            return
        self._tables.look()
        for captured in self._tables.by_name.values():
            self._tables.resume(captured)
        if self._position is None:
            self._position = source.position
        # The place where reading begins has to be known before a part of a transaction is written.
        self.settle()

    def _meet(self, gap: Gap) -> None:
        """Heal a gap that was there at the beginning, or raise with what is missing."""
        upto = "now" if gap.before is None else gap.before
        text = f"{gap.reason}. Changes after {gap.after} and before {upto} were not captured"
        if not self._heals:
            raise SourceGap(
                f"The source no longer has all changes of {self._prefix!r}: {text}",
                hint=_HINT,
                after=gap.after,
                before=gap.before,
            )
        self._heal(text)

    def _heal(self, text: str) -> None:
        """Begin where the source still has changes, and compare all tables with their topics."""
        if (again := self._source.begin(None)) is not None:
            raise SourceError(f"The source cannot begin anew: {again.reason}")
        self._tables.notice("gap", text)
        self._skip, self._held = 0, []
        self.reached = replace(self.reached, tx=None, done=0, parts=0)
        self._tables.look()
        for captured in self._tables.by_name.values():
            self._tables.snapshot(captured, "heal", doubt=True)
        self._position = self._source.position
        self.settle()

    # What a caller sees

    @property
    def position(self) -> str | None:
        """The position in the source up to which everything is in the log."""
        return self._position

    def has_passed(self, head: str) -> bool:
        """True if no snapshot is running, and everything up to a position is in the log."""
        if self._snapshots.running or self._position is None or self.reached.tx is not None:
            return False
        return self._source.passed(self._position, head)

    def tables(self) -> list[Captured]:
        """The captured tables, by name."""
        return [self._tables.by_name[name] for name in sorted(self._tables.by_name)]

    def snapshot(self, name: str) -> None:
        """Begin the snapshot of a table again, beside the stream."""
        captured = self._tables.by_name.get(name)
        if captured is None:
            raise UserError(
                f"The table {name!r} is not captured under {self._prefix!r}",
                hint=f"There are: {', '.join(sorted(self._tables.by_name)) or 'none'}",
            )
        self._tables.snapshot(captured, "incremental")

    def step(self, seconds: float) -> bool:
        """Write what there is: a piece of a snapshot, and transactions. False if there was nothing.

        Waits for transactions up to so many seconds.
        """
        with _uncollected():
            busy = self._step_snapshot()
            wait = 0.0 if busy else min(seconds, _SOON) if self._snapshots.waits else seconds
            try:
                read = self._source.read(wait)
            except SourceGap as gap:
                if not self._heals:
                    raise
                self._heal(f"{gap.message}. What it changed was not captured")
                return True
            self._crash_point("read")
            self._write(read)
        return busy or any(transaction.changes for transaction in read)

    def settle(self) -> None:
        """Write the position, if the source was quiet since the last commit."""
        if self._position != self.reached.position or self._tables.has_changed:
            self._commit(_NOTHING, replace(self.reached, position=self._position))

    # Transactions

    def _write(self, read: Iterable[SourceTransaction]) -> None:
        """Write transactions, several small ones in a commit."""
        group: list[SourceTransaction] = []
        size = 0
        for transaction in read:
            count = len(transaction.changes)
            if not count and self.reached.tx not in (None, transaction.id):
                continue  # news of a position, before the rest of a transaction comes again
            alone = self._is_large(transaction)
            if group and (alone or size + count > self._limits.changes):
                self._write_group(group)
                group, size = [], 0
            if alone:
                self._write_parts(transaction)
            elif count:
                group.append(transaction)
                size += count
            elif group:
                group[-1] = group[-1]._replace(position=transaction.position)
            else:
                self._position = transaction.position
        if group:
            self._write_group(group)

    def _is_large(self, transaction: SourceTransaction) -> bool:
        """True if a transaction is, or may be, more than one commit may hold."""
        if not transaction.whole or self.reached.tx is not None:
            return True
        limit = self._limits.changes
        return len(transaction.changes) > limit or any(
            change.op == "t" and self._rows_of(change.table) > limit
            for change in transaction.changes
        )

    def _rows_of(self, table: Table) -> int:
        return self._copy.count(self._tables.of(table).topic.name)

    def _write_group(self, group: list[SourceTransaction]) -> None:
        """Write whole transactions in a commit, or in two if they are too large for one."""
        now = self._clock.now()
        stamps = [Stamp(done.position, done.id, self._at(done, now)) for done in group]
        prepared = self._commits.prepare(by_table(done.changes for done in group), stamps)
        if prepared.bytes > self._limits.bytes:
            if len(group) == 1:
                self._write_parts(group[0])
            else:
                half = len(group) // 2
                self._write_group(group[:half])
                self._write_group(group[half:])
            return
        self._note(group, prepared)
        self._commit(
            prepared,
            replace(
                self.reached,
                position=group[-1].position,
                at=stamps[-1].at,
                transactions=self.reached.transactions + len(group),
                changes=self.reached.changes + sum(len(done.changes) for done in group),
            ),
        )

    def _write_parts(self, transaction: SourceTransaction) -> None:
        """Write a transaction, or a part of it that the source gives, in numbered parts."""
        if self.reached.tx not in (None, transaction.id):
            raise SourceError(
                f"The source gave the transaction {transaction.id} before the rest of "
                f"{self.reached.tx}, of which {self.reached.parts} parts are written",
                hint="This is a bug in the source: please report it",
            )
        changes = [*self._held, *transaction.changes]
        self._held = []
        if not transaction.whole and changes and changes[-1].op == "d":
            # The create that belongs to it may come with the next part.
            self._held.append(changes.pop())
        next = min(self._skip, len(changes))
        self._skip -= next
        while next < len(changes):
            if self._is_large_truncate(changes[next]):
                self._truncate(transaction, changes[next], next + 1 == len(changes))
                next += 1
                continue
            end = next + 1
            while (
                end < len(changes)
                and end - next < self._limits.changes
                and not self._is_large_truncate(changes[end])
            ):
                end += 1
            end = _undivided(changes, next, end)
            next += self._write_part(transaction, changes[next:end], end == len(changes))

    def _is_large_truncate(self, change: Change) -> bool:
        return change.op == "t" and self._rows_of(change.table) > self._limits.changes

    def _write_part(
        self, transaction: SourceTransaction, changes: Sequence[Change], to_end: bool
    ) -> int:
        """Write the next part of a transaction; returns how many of the changes it has."""
        while True:
            last = to_end and transaction.whole
            buckets = by_table([changes], self.reached.done + 1)
            prepared = self._commits.prepare(buckets, [self._stamp(transaction, last)])
            if prepared.bytes <= self._limits.bytes or len(changes) == 1:
                break
            half = _undivided(changes, 0, len(changes) // 2)
            if half == len(changes):
                break
            changes, to_end = changes[:half], False
        self._commit_part(transaction, prepared, len(changes), last)
        return len(changes)

    def _truncate(self, transaction: SourceTransaction, change: Change, to_end: bool) -> None:
        """Delete each row of a large table, in parts of its own."""
        captured = self._tables.of(change.table)
        self._snapshots.note_truncated(transaction, change.table)
        order = self.reached.done + 1
        while page := self._copy.page(captured.topic.name):
            written = Written(captured.table)
            for key, row in page:
                written.delete(key, row, 0, order)
            gone: dict[str, Row | None] = dict.fromkeys(key for key, _ in page)
            last = to_end and transaction.whole and len(page) == self._rows_of(change.table)
            prepared = self._commits.encoded(
                [written],
                {captured.topic.name: TableChanges(captured.seen, gone)},
                [self._stamp(transaction, last)],
            )
            counted = len(page) == self._rows_of(change.table)
            self._commit_part(transaction, prepared, int(counted), last)

    def _commit_part(
        self, transaction: SourceTransaction, prepared: Prepared, changes: int, last: bool
    ) -> None:
        self._note([transaction], prepared)
        reached = replace(
            self.reached,
            at=self._at(transaction, self._clock.now()),
            tx=transaction.id,
            done=self.reached.done + changes,
            parts=self.reached.parts + 1,
            changes=self.reached.changes + changes,
        )
        if last:
            reached = replace(
                reached,
                position=transaction.position,
                tx=None,
                done=0,
                parts=0,
                transactions=reached.transactions + 1,
            )
        self._commit(prepared, reached)

    def _at(self, transaction: SourceTransaction, now: int) -> int:
        """The event time of a transaction: it neither goes back nor is ahead of the clock."""
        given = now if transaction.at is None else min(transaction.at, now)
        return given if self.reached.at is None else max(given, self.reached.at)

    def _stamp(self, transaction: SourceTransaction, last: bool) -> Stamp:
        """The stamp of a part of a transaction."""
        at = self._at(transaction, self._clock.now())
        return Stamp(transaction.position, transaction.id, at, self.reached.parts + 1, last)

    def _note(self, transactions: Sequence[SourceTransaction], prepared: Prepared) -> None:
        """Tell a waiting chunk what has changed since it was read."""
        for written in prepared.written:
            self._snapshots.note(transactions, written)
        for transaction in transactions:
            for change in transaction.changes:
                if change.op == "t":
                    self._snapshots.note_truncated(transaction, change.table)

    # Snapshots

    def _step_snapshot(self) -> bool:
        """Write a piece of a snapshot, if one can be written now. False if none could."""
        if self.reached.tx is not None:
            return False  # a chunk has no place inside of a transaction
        if self._snapshots.read():
            self._crash_point("chunk")
        piece = self._snapshots.piece(self._position)
        if piece is None:
            return False
        captured = piece.captured
        at = self._clock.now() if self.reached.at is None else self.reached.at
        kind = "initial" if piece.snapshot.kind == "initial" else "incremental"
        stamp = Stamp(piece.position or self._position, None, at, snapshot=kind)
        pages = [] if piece.page is None else [piece.page]
        prepared = self._commits.encoded(
            [*pages, piece.written], {captured.topic.name: piece.changes}, [stamp]
        )
        if prepared.bytes > self._limits.bytes and piece.count > 1:
            self._snapshots.shrink()
            return True
        self._snapshots.grow(self._limits.bytes / max(1, prepared.bytes))
        self._tables.change(captured, replace(captured.state, snapshot=piece.snapshot))
        self._snapshots.written()
        at_last = at if piece.count else self.reached.at
        self._commit(prepared, replace(self.reached, position=self._position, at=at_last))
        return True

    # Commits

    def _commit(self, prepared: Prepared, reached: Reached) -> None:
        """Commit to the log, then to the copy, and let the source forget what it has."""
        self.reached = self._commits.write(prepared, reached, after=self.reached.mark)
        if self.reached.tx is None:
            self._position = self.reached.position
            if self._position is not None:
                self._source.acknowledge(self._position)
        self._crash_point("acknowledged")


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from running.

    A step makes up to a hundred thousand rows, which live until they are written. The collector
    would look at all of them again and again, which costs a third of the time, and find nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _undivided(changes: Sequence[Change], start: int, end: int) -> int:
    """An end of a part that does not divide a delete from a create which needs its values."""
    if start < end < len(changes) and changes[end - 1].op == "d":
        after = changes[end].after
        if after is not None and UNCHANGED in after:
            return end - 1 if end - 1 > start else end + 1
    return end


_NOTHING = Prepared([], {}, [])
_SOON = 0.05
"""Seconds to wait for the stream while a chunk waits for it to pass."""
