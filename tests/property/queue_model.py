"""A work queue in plain Python: the messages, and what may be handed out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from headrace.clock import SECOND, VirtualClock, micros
from headrace.queue import Message, QueueSettings

Place = tuple[int, int]

WAITING, ACQUIRED, FINISHED, DEAD = "waiting", "acquired", "finished", "dead"


@dataclass
class Entry:
    """A message. A lease that is over ends when the next messages are taken."""

    place: Place
    number: int
    key: bytes | None
    priority: int
    put_due: int
    state: str = WAITING
    due: int = 0
    token: int = 0
    expires: int = 0
    deliveries: int = 0
    in_line: bool = True
    """False if it takes its place in its key's line later: it was put with a delay, or redriven."""
    holds: bool = False
    """True if it was released with a delay, so that it holds up its key in an ordered queue."""

    @property
    def order(self) -> tuple[int, int, Place]:
        return -self.priority, self.number, self.place

    @property
    def unfinished(self) -> bool:
        return self.state in (WAITING, ACQUIRED)

    def start_over(self) -> None:
        """Let it wait as if it were new."""
        self.state, self.due, self.deliveries = WAITING, self.put_due, 0
        self.in_line, self.holds = not self.put_due, False


@dataclass
class QueueModel:
    """The messages of a queue, and what it has done."""

    settings: QueueSettings
    clock: VirtualClock
    entries: dict[Place, Entry] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    results: list[bytes] = field(default_factory=list)
    token: int = 0
    handed_out: dict[bytes, int] = field(default_factory=dict)

    def unfinished(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.unfinished]

    def of(self, state: str) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.state == state]

    def holds(self, message: Message) -> bool:
        """True if this delivery has not ended."""
        entry = self.entries[message.partition, message.offset]
        return entry.state == ACQUIRED and entry.token == message.token

    def wake(self, *, reboot: bool = False) -> None:
        """End leases."""
        for entry in self.of(ACQUIRED):
            if reboot or entry.expires <= self.clock.monotonic():
                entry.state = WAITING

    def available(self) -> list[Entry]:
        """Messages that wait for no time, in the order in which they are handed out."""
        now = self.clock.now()
        return sorted((e for e in self.of(WAITING) if e.due <= now), key=lambda e: e.order)

    def take(self, messages: Sequence[Message], over: Collection[Place], limit: int) -> None:
        """Check what was handed out, and those of it that became dead letters at once."""
        available = self.available()
        places = [(message.partition, message.offset) for message in messages]
        picked = [self.entries[place] for place in {*places, *over}]
        assert len(picked) == len(places) + len(over) <= limit
        assert {e.place for e in picked} <= {e.place for e in available}, "not available"
        assert places == sorted(places, key=lambda place: self.entries[place].order)
        if not self.settings.by_key:
            assert {e.place for e in picked} == {e.place for e in available[:limit]}
        for message in messages:
            entry = self.entries[message.partition, message.offset]
            assert message.deliveries == entry.deliveries + 1
            assert message.token > self.token, "a fencing token goes back"
            self._check_line(entry)
            entry.state, entry.token = ACQUIRED, message.token
            entry.expires = self.clock.monotonic() + micros(self.settings.lease)
            entry.deliveries += 1
        self.token = max([self.token, *(message.token for message in messages)])
        most = self.settings.max_deliveries
        for entry in picked:
            if self.settings.key_rate is not None and entry.key is not None:
                span = int(SECOND / self.settings.key_rate)
                before = self.handed_out.get(entry.key, -span)
                assert self.clock.now() - before >= span, "too soon for its key"
                self.handed_out[entry.key] = self.clock.now()
            if entry.place in over:
                assert most is not None
                assert entry.deliveries == most
                entry.state = DEAD
        self.outcomes["rejected"] += len(over)
        self._check_keys(full=len(picked) == limit or bool(over))

    def _check_line(self, entry: Entry) -> None:
        if self.settings.ordered and entry.key is not None:
            before = [
                e
                for e in self.unfinished()
                if e.key == entry.key and e.in_line and e.order < entry.order
            ]
            assert not before, f"{entry} was handed out before {before[0]}"

    def _check_keys(self, *, full: bool) -> None:
        """Check that no key has more turns than it may, and none has fewer than it could."""
        most = self.settings.per_key
        for key in {entry.key for entry in self.unfinished()}:
            mine = [entry for entry in self.unfinished() if entry.key == key]
            flying = sum(entry.state == ACQUIRED for entry in mine)
            assert key is None or most is None or flying <= most, "too many of a key in flight"
            if full or (self.settings.key_rate is not None and key is not None):
                continue
            now = self.clock.now()
            held = any(e.holds and e.state == WAITING and e.due > now for e in mine)
            if self.settings.ordered and key is not None and held:
                continue  # a failed one holds up its key
            could = flying + sum(entry.state == WAITING and entry.due <= now for entry in mine)
            allowed = could if key is None or most is None else min(most, could)
            assert flying == allowed, f"messages of key {key!r} are not handed out"
