"""After any sequence of operations, a queue holds the same messages as its model.

Every message is accepted once, rejected or still there, whichever worker crashes; keys keep their
order; and the counts that are shown are those of the model.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from headrace.clock import VirtualClock, micros
from headrace.errors import MisusedHandle, QueueFull
from headrace.log import EARLIEST, LATEST, Commit
from headrace.log.file.log import FileLog
from headrace.queue import (
    Message,
    NewMessage,
    Outcome,
    QueueSettings,
    Send,
    Settlement,
    create_queue,
    open_queue,
    purge,
    redrive,
    seek,
    state_at,
)
from tests.property.driver import START, Machine
from tests.property.queue_model import ACQUIRED, DEAD, FINISHED, WAITING, Entry, QueueModel

KEYS = (None, b"a", b"b")
KINDS: list[dict[str, Any]] = [
    {},
    {"priorities": True},
    {"ordered": True},
    {"ordered": True},
    {"key_concurrency": 2},
    {"key_rate": 0.1},
    {"priorities": True, "key_concurrency": 1},
]
BOUNDS: list[dict[str, Any]] = [
    {},
    {"max_messages": 5, "overflow": "refuse"},
    {"max_messages": 5, "overflow": "block"},
    {"max_messages": 5, "overflow": "drop"},
]
DELAYS = st.sampled_from([None, None, None, timedelta(seconds=30)])
OUTCOMES = st.sampled_from([Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.RELEASED, Outcome.REJECTED])
PASSING = st.sampled_from([timedelta(seconds=s) for s in (0, 10, 40, 40)])


class QueueMachine(RuleBasedStateMachine):
    """Drives a queue and a model of it, and compares them."""

    @initialize(
        kind=st.sampled_from(KINDS),
        bound=st.sampled_from(BOUNDS),
        most=st.sampled_from([None, 2]),
        partitions=st.integers(1, 2),
    )
    def begin(
        self, kind: dict[str, Any], bound: dict[str, Any], most: int | None, partitions: int
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-queue-"))
        self.clock = VirtualClock(START)
        self.boots = 0
        made = QueueSettings(lease=timedelta(seconds=30), max_deliveries=most, **kind, **bound)
        self.model = QueueModel(made, self.clock)
        self.deliveries: list[Message] = []
        self.partitions = partitions
        self._open()
        self.log.create_topic("results")
        self.queue = create_queue(self.log, "work", partitions=partitions, settings=made)
        self.put([(b"a", 0, None), (b"a", 1, None), (None, 0, None)])
        self.take(timedelta(0), 2)

    def _open(self) -> None:
        self.log = FileLog(self.folder, clock=self.clock, disk=Machine(self.boots))

    # Putting

    @rule(
        rows=st.lists(
            st.tuples(st.sampled_from(KEYS), st.integers(-1, 1), DELAYS), min_size=1, max_size=3
        )
    )
    def put(self, rows: list[tuple[bytes | None, int, timedelta | None]]) -> None:
        model, bound = self.model, self.model.settings.max_messages
        messages = [
            NewMessage(str(n), key, priority=rank if model.settings.priorities else 0, delay=delay)
            for n, (key, rank, delay) in enumerate(rows)
        ]
        excess = 0 if bound is None else len(model.unfinished()) + len(rows) - bound
        drops = model.settings.overflow == "drop" and excess > 0
        if drops:
            model.wake()
        if excess > 0 and not (drops and len(model.of(WAITING)) >= excess):
            with pytest.raises(QueueFull):
                self.queue.put_many(messages, timeout=timedelta(0))
            return
        before, head = self._dead(), self.log.head()
        self.queue.put_many(messages, timeout=timedelta(0))
        dropped = self._dead() - before
        assert len(dropped) == max(0, excess)
        for place in dropped:
            assert model.entries[place].state == WAITING, "a message was dropped that a worker has"
            model.entries[place].state = DEAD
        model.outcomes["dropped"] += len(dropped)
        self._add(messages, head)

    def _add(self, messages: list[NewMessage], head: int) -> None:
        """Add the messages of the last commit to the model."""
        found = 0
        for batch in self.log.read("work", start=Commit(head)):
            for record in batch.records():
                put, found = messages[int(record.value)], found + 1
                due = self.clock.now() + micros(put.delay) if put.delay else 0
                place = (batch.partition, record.offset)
                assert batch.commit is not None
                entry = Entry(place, batch.commit, put.raw_key, put.priority, due)
                entry.start_over()
                self.model.entries[place] = entry
        assert found == len(messages)

    # Taking and settling

    @rule(passed=PASSING, limit=st.integers(1, 4))
    def take(self, passed: timedelta, limit: int) -> None:
        self.clock.advance(passed)
        self.model.wake()
        before = self._dead()
        self._took(self.queue.take(limit), before, limit)

    def _took(self, messages: list[Message], before: set[tuple[int, int]], limit: int) -> None:
        self.model.take(messages, self._dead() - before, limit)
        self.deliveries += messages

    @rule(data=st.data(), limit=st.integers(0, 2))
    def settle(self, data: st.DataObject, limit: int) -> None:
        """Settle deliveries, some of them twice or too late, and take others."""
        if not self.deliveries:
            return
        last = {(m.id, m.token): m for m in self.deliveries[-8:]}
        names = st.lists(st.sampled_from(list(last)), min_size=1, max_size=4, unique=True)
        chosen = [last[name] for name in data.draw(names, "deliveries")]
        if data.draw(st.sampled_from([False, False, False, True]), "twice"):
            chosen.append(chosen[0])
        settled = [self._settlement(data, message) for message in chosen]
        if len({(m.id, m.token) for m in chosen}) < len(chosen):
            with pytest.raises(MisusedHandle):
                self.queue.exchange(settled, limit)
            return
        before = self._dead()
        lost, taken = self.queue.exchange(settled, limit)
        ended = [s for s in settled if self.model.holds(s.message)]
        assert [id(m) for m in lost] == [
            id(s.message) for s in settled if not self.model.holds(s.message)
        ]
        for settlement in ended:
            self._end(settlement)
        if ended and limit:
            before |= {e.place for e in self.model.of(DEAD)}
            self.model.wake()
            self._took(taken, before, limit)
        else:
            assert taken == []

    def _settlement(self, data: st.DataObject, message: Message) -> Settlement:
        match data.draw(OUTCOMES, "outcome"):
            case Outcome.ACCEPTED:
                return message.accepted(Send("results", f"{message.id} {message.token}"))
            case Outcome.REJECTED:
                return message.rejected("bad")
            case _:
                delay = data.draw(DELAYS, "delay") or timedelta(0)
                counted = data.draw(st.booleans(), "counted")
                return Settlement(message, Outcome.RELEASED, (), "later", delay, counted)

    def _end(self, settlement: Settlement) -> None:
        message, model = settlement.message, self.model
        entry = model.entries[message.partition, message.offset]
        model.outcomes[settlement.outcome.value] += 1
        match settlement.outcome:
            case Outcome.ACCEPTED:
                entry.state = FINISHED
                model.results += [str(send.value).encode() for send in settlement.sends]
            case Outcome.REJECTED:
                entry.state = DEAD
            case _:
                entry.state = WAITING
                entry.deliveries -= not settlement.counted
                entry.due = self.clock.now() + micros(settlement.delay) if settlement.delay else 0
                entry.holds = bool(settlement.delay)

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        if not self.deliveries:
            return
        chosen = data.draw(st.lists(st.sampled_from(self.deliveries[-6:]), max_size=3), "held")
        lost = self.queue.renew(*chosen)
        assert lost == [message for message in chosen if not self.model.holds(message)]
        for message in chosen:
            if self.model.holds(message):
                entry = self.model.entries[message.partition, message.offset]
                entry.expires = self.clock.monotonic() + micros(self.model.settings.lease)

    # What else happens

    @rule(data=st.data())
    def something_rare(self, data: st.DataObject) -> None:
        match data.draw(st.sampled_from(["crash", "redrive", "purge", "seek", "grow"]), "what"):
            case "crash":
                self.crash(data.draw(st.booleans(), "reboots"))
            case "redrive":
                reason = data.draw(st.sampled_from([None, "bad", "ended"]), "reason")
                self.redrive(data.draw(st.sampled_from([None, 1]), "limit"), reason)
            case "purge":
                self._sought(purge(self.queue), Outcome.PURGED, from_commit=self.log.head())
            case "seek":
                self.seek(data.draw(st.sampled_from([0, None, self.log.head() // 2]), "commit"))
            case "grow" if self.partitions < 4:
                self.partitions += 1
                self.log.alter_topic("work", partitions=self.partitions)

    def crash(self, reboots: bool) -> None:
        """Let another process go on, which knows nothing of what was handed out."""
        self.queue.close()
        self.log.close()
        self.boots += reboots
        self._open()
        self.queue = open_queue(self.log, "work")
        if reboots:
            self.deliveries = []  # no process has outlived it
            for entry in self.model.of(ACQUIRED):
                entry.expires = 0

    def redrive(self, limit: int | None, reason: str | None) -> None:
        before = self._dead(reason)
        done = redrive(self.queue, limit=limit, reason=reason)
        again = before - self._dead(reason)
        assert done == len(again) == min(len(before), len(before) if limit is None else limit)
        for place in again:
            entry = self.model.entries[place]
            assert entry.state == DEAD
            entry.start_over()
            entry.due, entry.in_line = 0, False
        self.model.outcomes["redriven"] += done

    def seek(self, commit: int | None) -> None:
        position = LATEST if commit is None else Commit(commit) if commit else EARLIEST
        number = self.log.head() if commit is None else commit
        self._sought(seek(self.queue, position), Outcome.SOUGHT, from_commit=number)

    def _sought(self, before: int, outcome: Outcome, from_commit: int) -> None:
        assert before == len(self.model.unfinished())
        for entry in self.model.entries.values():
            if entry.number > from_commit:
                entry.start_over()
            elif entry.unfinished:
                entry.state = FINISHED
        self.model.outcomes[outcome.value] += self.partitions

    # What holds

    def _dead(self, reason: str | None = None) -> set[tuple[int, int]]:
        dead = self.log.queues().dead(self.queue.row, reason)
        return {(each.partition, each.offset) for each in dead}

    @invariant()
    def the_counts_are_those_of_the_model(self) -> None:
        state, model = self.queue.state(), self.model
        assert (state.unfinished, state.dead) == (len(model.unfinished()), len(model.of(DEAD)))
        assert state.acquired == len(model.of(ACQUIRED))
        assert min(state.ready, state.delayed, state.blocked, state.unread) >= 0
        past = state_at(self.queue, Commit(self.log.head()))
        assert (past.waiting, past.dead) == (state.unfinished, state.dead)
        outcomes = {name: count for name, count in past.outcomes.items() if name != "created"}
        assert outcomes == +model.outcomes
        assert self._dead() == {entry.place for entry in model.of(DEAD)}

    def teardown(self) -> None:
        """Let a worker finish what is left, and compare the results."""
        if not hasattr(self, "queue"):
            return
        try:
            for _ in range(2 * len(self.model.unfinished()) + 1):
                self.take(timedelta(minutes=2), 100)
                held = [m for m in self.deliveries if self.model.holds(m)]
                self.queue.accept(*held)
                for message in held:
                    self._end(message.accepted())
            self.the_counts_are_those_of_the_model()
            assert not self.model.unfinished(), "messages were never handed out"
            found = [r.value for batch in self.log.read("results") for r in batch.records()]
            assert Counter(found) == Counter(self.model.results)
        finally:
            self.queue.close()
            self.log.close()
            shutil.rmtree(self.folder)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(
    max_examples=max(10, settings.default.max_examples // 3),  # type: ignore[union-attr]
    stateful_step_count=30,
    report_multiple_bugs=False,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
