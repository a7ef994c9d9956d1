"""The runner of a process: it reacts to commits, commits what follows, and sends the commands.

A step reads what has come since the position and lets the instances react in memory. Then one
commit has the new position, the states and the commands, on the condition that nobody else has
moved the position. Only after it are the commands handled, each in a commit of its own, under its
own id. Whoever starts after a kill sends again what may not have been handled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.clock import MILLISECOND, to_datetime, to_micros
from headrace.closing import Closing
from headrace.errors import ConditionFailed, Contended, HeadraceError, InvalidDomain, ProcessFailed
from headrace.eventsourcing.answers import Answer
from headrace.eventsourcing.declare import Aggregate
from headrace.eventsourcing.processes.actions import Cancel, Send, TimedOut, Timeout, actions_of
from headrace.eventsourcing.processes.inputs import (
    PROCESS,
    Input,
    Turn,
    command_id,
    refusal,
    turns_of,
)
from headrace.eventsourcing.processes.stored import Issued, Position, Progress, readable
from headrace.eventsourcing.scalars import is_text
from headrace.eventsourcing.store import Store
from headrace.eventsourcing.stored import StoredEvent
from headrace.log import LATEST, Commit
from headrace.log import Position as LogPosition
from headrace.log.idle import IdleHeartbeat

if TYPE_CHECKING:
    from headrace.eventsourcing.processes.declare import Process

_LOOK_AGAIN = 10 * MILLISECOND
_MOST = 1000
"""Commands in one commit, more or less."""
_FAR = 10_000
"""Commits of no interest after which the position is stored all the same."""


class Runner(Closing):
    """Runs a process on a store. A `with` block closes it."""

    def __init__(self, process: Process[Any], store: Store, start: LogPosition) -> None:
        _check(process, store)
        self._process = process
        self._store = store
        self._start = start
        self._progress: Progress[Any] = Progress(process, store)
        self._position: Position | None = None
        self._read = 0
        self._sent = 0
        self._frontier: int | None = None
        self._changed: dict[str, None] = {}
        self._issued: list[Issued] = []
        self._numbers: Counter[str] = Counter()
        self.commands = 0
        """The number of commands that were sent. One that was handled before does not count."""

    def close(self) -> None:
        """Stop. What was not committed is done again by whoever runs the process next."""
        self._progress.close()

    def catch_up(self, stop: Callable[[], bool] = lambda: False) -> int:
        """Go on until there is nothing left to react to; return how many commands were sent."""
        before = self.commands
        while not stop() and self.step():
            pass
        return self.commands - before

    def go_on(self, stop: Callable[[], bool]) -> int:
        """Go on until `stop` returns True; return how many commands were sent.

        If the topic of the events has the setting `idle`, their time goes on while none come.
        """
        before, clock = self.commands, self._store.clock
        heart = IdleHeartbeat(self._store.log, [self._store.domain.events.name], clock)
        heart.start()
        try:
            while not stop():
                heart.check()
                if not self.step():
                    clock.sleep(_LOOK_AGAIN)
        finally:
            heart.stop()
        return self.commands - before

    def step(self) -> bool:
        """React to what has come and send the commands; False if there was nothing to do."""
        try:
            if self._position is None:
                self._position = self._load()
                found = self._deliver(self._progress.issued(self._sent, self._position.commit))
                self._sent = self._position.commit
                if found:
                    return True
            return self._step(self._position)
        except ConditionFailed:  # another runner was first: take over what it has committed
            self._position = None
            return True
        except BaseException:
            self._position = None
            raise

    # Inside

    def _step(self, position: Position) -> bool:
        more, failure = self._react(None)
        if self._changed or self._issued or self._read - position.read > _FAR:
            position = self._commit(position)
        found = bool(self._deliver(self._issued))
        self._sent = max(self._sent, position.commit)
        self._forget_step()
        if failure is not None:
            raise failure
        return more or found

    def _load(self) -> Position:
        """Go back to what the log has."""
        log = self._store.log
        position = self._progress.load()
        self._forget_step()
        if position is None:
            start = log.head() if self._start == LATEST else 0
            start = self._start.number if isinstance(self._start, Commit) else start
            position = self._progress.commit(Position(0, 0, 0), start, 0, (), [])
        self._read, self._sent = position.read, position.sent
        self._frontier = log.frontier(self._store.domain.events.name, self._read)
        return position

    def _forget_step(self) -> None:
        self._changed, self._issued = {}, []

    def _react(self, stop: int | None) -> tuple[bool, Exception | None]:
        """React in memory to the next commits. Those before one that fails count."""
        done = self._read
        try:
            turns = turns_of(self._process, self._store, self._read, stop)
            for turn in turns.each:
                self._take(turn)
                done = turn.commit
                if len(self._issued) >= _MOST:
                    self._read = done
                    return True, None
        except Exception as failure:
            if stop is not None:
                raise
            self._load()
            if done > self._read:
                self._react(done)
            return False, failure
        self._read = turns.upto
        return turns.more, None

    def _take(self, turn: Turn) -> None:
        """React to a commit. A time-out that it makes due comes before its events."""
        self._numbers.clear()
        if turn.frontier is not None:
            self._frontier = turn.frontier
        self._time_out(turn.commit)
        for refused in turn.refused:
            self._apply(refusal(self._process, refused), turn.commit)
        for stored in turn.events:
            if (found := self._input(stored)) is not None:
                self._apply(found, turn.commit)
        self._time_out(turn.commit)

    def _time_out(self, commit: int) -> None:
        while self._frontier is not None:
            if (found := self._progress.timeouts.take(self._frontier)) is None:
                return
            due, instance, name = found
            what = f"the time-out {name!r} of {instance!r}"
            at = to_datetime(due)
            self._apply(Input(instance, TimedOut(name), at, f"timeout:{name}", what, {}), commit)

    def _input(self, stored: StoredEvent) -> Input | None:
        what = f"event {stored.id!r} ({stored.type!r} of {stored.aggregate!r})"
        try:
            instance = self._process.key(stored)
            if instance is None:
                return None
            if not is_text(instance):
                raise InvalidDomain(
                    f"key of {self._process.name!r} returned {instance!r}",
                    hint="Return the id of an instance as text, or None for none",
                )
        except Exception as error:
            raise self._failed(what, stored.id, stored.commit, error) from error
        return Input(instance, stored.event, stored.at, stored.id, what, stored.metadata)

    def _apply(self, found: Input, commit: int) -> None:
        """Let an instance react."""
        process, instance = self._process, found.instance
        timeouts = self._progress.timeouts
        try:
            before = self._progress.state(instance), timeouts.of(instance)
            state = process.evolve(before[0], found.event)
            if type(state) is not type(process.initial):
                raise InvalidDomain(
                    f"evolve of {process.name!r} returned {state!r} for a "
                    f"{type(found.event).__name__}",
                    hint=f"It returns the next {type(process.initial).__name__} for everything "
                    "that it gets, the same one if nothing changes",
                )
            actions = actions_of(process.name, process.react(state, found.event, instance))
            self._progress.remember(instance, state)
            for action in actions:
                match action:
                    case Send():
                        self._send(action, found, commit)
                    case Timeout():
                        timeouts.set(instance, action.name, _due(action, found))
                    case Cancel():
                        timeouts.cancel(instance, action.name)
        except Exception as error:
            raise self._failed(found.what, found.cause, commit, error) from error
        if (state, timeouts.of(instance)) != before or isinstance(found.event, TimedOut):
            self._changed[instance] = None

    def _send(self, send: Send, found: Input, commit: int) -> None:
        self._store.domain.type_of_command(send.to, send.command).codec.data(send.command)
        number = self._numbers[found.instance]
        self._numbers[found.instance] += 1
        name = self._process.name
        metadata = {**readable(found.metadata), PROCESS: name, "cause": found.cause}
        id = command_id(name, found.instance, commit, number)
        self._issued.append(Issued(id, found.instance, found.cause, send, found.at, metadata))

    def _commit(self, position: Position) -> Position:
        # What follows from an event cannot be earlier than what is in the log: it would be late.
        now = self._store.log.frontier(self._store.domain.events.name)
        if now is not None:
            self._issued = [_at(one, now) for one in self._issued]
        self._position = self._progress.commit(
            position, self._read, self._sent, self._changed, self._issued
        )
        return self._position

    def _deliver(self, issued: Iterable[Issued]) -> int:
        """Send commands; return how many had not been handled before."""
        new = 0
        for one in issued:
            answer = None
            while answer is None:
                answer = self._handle(one)
            new += not answer.repeated
        self.commands += new
        return new

    def _handle(self, one: Issued) -> Answer | None:
        """The answer to a command; None if others were faster each time."""
        store, send = self._store, one.send
        try:
            if isinstance(send.to, Aggregate):
                return store.handle(
                    send.to, send.id, send.command, id=one.id, metadata=one.metadata, at=one.at
                )
            return store.decide_across(
                send.to, send.command, id=one.id, metadata=one.metadata, at=one.at
            )
        except Contended:
            return None
        except HeadraceError:
            raise
        except Exception as error:
            raise ProcessFailed(
                f"The command {one.id!r} of the process {self._process.name!r} could not be "
                f"decided: {error!r}",
                hint=f"Mend `decide` of {send.to.name!r} and start again: the command is recorded, "
                "and is sent again",
                cause=one.cause,
                commit=None,
            ) from error

    def _failed(self, what: str, cause: str, commit: int, error: Exception) -> ProcessFailed:
        said = error.message if isinstance(error, HeadraceError) else repr(error)
        advice = error.hint if isinstance(error, HeadraceError) else None
        return ProcessFailed(
            f"The process {self._process.name!r} failed at {what}, commit {commit}: {said}",
            hint=f"{advice}. Then start it again: it goes on there"
            if advice
            else "Mend it and start it again: it goes on there, and skips nothing",
            cause=cause,
            commit=commit,
        )


def _check(process: Process[Any], store: Store) -> None:
    """Raise if a process cannot run on a store."""
    domain = store.domain
    if not domain.record_commands:
        raise InvalidDomain(
            f"The process {process.name!r} cannot run: the domain {domain.name!r} does not record "
            "commands, so one that is sent again, or refused, leaves no trace",
            hint="Leave out record_commands=False",
        )
    for kind in process.events:
        if kind not in domain.event_types:
            raise InvalidDomain(
                f"The process {process.name!r} reads {kind.name!r}, which is no event of the "
                f"domain {domain.name!r}",
                hint=f"It has: {', '.join(one.name for one in domain.event_types)}",
            )


def _due(timeout: Timeout, found: Input) -> int:
    """When a time-out is due, in microseconds."""
    at = timeout.at if timeout.after is None else found.at + timeout.after
    if at is None or (isinstance(found.event, TimedOut) and at <= found.at):
        raise InvalidDomain(
            f"The time-out {timeout.name!r} is set for {at}, when another is due at {found.at}",
            hint="What a time-out sets has to be later than itself, or it would never end",
        )
    return to_micros(at)


def _at(issued: Issued, frontier: int) -> Issued:
    at = to_datetime(frontier)
    return Issued(issued.id, issued.instance, issued.cause, issued.send, at, issued.metadata)
