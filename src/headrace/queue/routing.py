"""Routing of messages to queues by key patterns and headers: AMQP's exchanges as one table.

A row of the table binds a queue. A message goes to each queue that one of its rows matches, once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from headrace.clock import Clock, SystemClock
from headrace.closing import Closing
from headrace.errors import InvalidSetting, Unroutable
from headrace.log.interface import Log
from headrace.log.record import Header
from headrace.queue.contract import NewMessage
from headrace.queue.declare import open_queue
from headrace.queue.putting import Putting, put_together

Kind = Literal["direct", "topic", "headers"]
KINDS: tuple[Kind, ...] = ("direct", "topic", "headers")


@dataclass(frozen=True)
class Binding:
    """A row of the table: the messages that a queue gets.

    `direct` matches one routing key. `topic` matches a pattern over the key's words, which dots
    separate: `*` is one word and `#` any number. `headers` compares headers, `all` of them or
    `any`; None stands for any value, and headers whose names begin with `x-` do not count.
    """

    queue: str
    kind: Kind
    key: str = ""
    headers: Mapping[str, bytes | None] = field(default_factory=dict, hash=False)
    match: Literal["all", "any"] = "all"

    def __post_init__(self) -> None:
        for name, allowed in (("kind", KINDS), ("match", ("all", "any"))):
            if getattr(self, name) not in allowed:
                raise InvalidSetting(
                    f"A binding of queue {self.queue!r} has {name} {getattr(self, name)!r}",
                    hint=f"Use {' or '.join(allowed)}",
                )

    def matches(self, key: str, headers: Mapping[str, bytes | None]) -> bool:
        """True if the queue gets a message with this routing key and these headers."""
        if self.kind == "direct":
            return key == self.key
        if self.kind == "topic":
            return matches_pattern(_words(self.key), _words(key))
        found = (
            name in headers and (wanted is None or headers[name] == wanted)
            for name, wanted in self.headers.items()
            if not name.startswith("x-")
        )
        return all(found) if self.match == "all" else any(found)


def direct(queue: str, key: str) -> Binding:
    """Bind a queue to the messages of one routing key."""
    return Binding(queue, "direct", key)


def topic(queue: str, pattern: str) -> Binding:
    """Bind a queue to the routing keys of a pattern: `order.*.placed`, `order.#`, `#`."""
    return Binding(queue, "topic", pattern)


def headers(
    queue: str,
    wanted: Mapping[str, str | bytes | None],
    match: Literal["all", "any"] = "all",
) -> Binding:
    """Bind a queue to messages with all of these headers, or any of them."""
    values = {name: value.encode() if isinstance(value, str) else value
              for name, value in wanted.items()}  # fmt: skip
    return Binding(queue, "headers", headers=values, match=match)


def matches_pattern(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """True if a routing key's words match a pattern's: `*` is one word and `#` any number.

    Only the last `#` is ever extended, so the cost is at most the product of the two lengths.
    """
    at = word = 0
    hash_at, resume = -1, 0
    while word < len(words):
        if at < len(pattern) and pattern[at] == "#":
            hash_at, resume = at, word
            at += 1
        elif at < len(pattern) and pattern[at] in ("*", words[word]):
            at, word = at + 1, word + 1
        elif hash_at >= 0:
            resume += 1
            at, word = hash_at + 1, resume
        else:
            return False
    return all(left == "#" for left in pattern[at:])


def _words(key: str) -> list[str]:
    """The words of a routing key or pattern. An empty one has none, as in RabbitMQ."""
    return key.split(".") if key else []


def bound(bindings: Iterable[Binding], key: str, given: Sequence[Header]) -> list[str]:
    """The queues that get a message, each once, in the order of their bindings."""
    values = dict(given)
    return list(dict.fromkeys(b.queue for b in bindings if b.matches(key, values)))


class Router(Closing):
    """Puts each message into all queues that are bound to it, in one commit.

    A message that no binding matches goes to the queue `unrouted`; without one it is refused. The
    queues are of one log, each over a topic of its own: queues over one topic get every message.
    """

    def __init__(
        self,
        log: Log,
        bindings: Iterable[Binding],
        *,
        unrouted: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.bindings = tuple(bindings)
        self.unrouted = unrouted
        self._clock = clock or SystemClock()
        names = [binding.queue for binding in self.bindings]
        self._queues: dict[str, Putting] = {}
        owners: dict[str, str] = {}
        with contextlib.ExitStack() as opened:
            for name in dict.fromkeys([*names, unrouted] if unrouted else names):
                queue = opened.enter_context(open_queue(log, name))
                if not isinstance(queue, Putting):
                    raise TypeError(f"{type(queue).__name__} takes no messages in a transaction")
                other = owners.setdefault(queue.row.topic, name)
                if other != name:
                    raise InvalidSetting(
                        f"Queues {other!r} and {name!r} are both over topic {queue.row.topic!r}",
                        hint="Queues over one topic get every message: bind one, or give each "
                        "queue a topic of its own",
                    )
                self._queues[name] = queue
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    def put(
        self,
        value: Any,
        *,
        route: str = "",
        key: Any = None,
        headers: Sequence[Header] = (),
        priority: int = 0,
        delay: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> list[str]:
        """Put one message by its routing key and headers, and return the names of its queues."""
        message = NewMessage(value, key, tuple(headers), priority, delay)
        return self.put_many([(route, message)], timeout=timeout)[0]

    def put_many(
        self, messages: Iterable[tuple[str, NewMessage]], *, timeout: timedelta | None = None
    ) -> list[list[str]]:
        """Put messages, each with its routing key, all in one commit; return the queues of each."""
        parts: dict[str, list[NewMessage]] = {}
        queues = []
        for route, message in messages:
            found = bound(self.bindings, route, message.headers)
            if not found and self.unrouted is None:
                raise Unroutable(
                    f"No queue is bound to a message with routing key {route!r} and headers "
                    f"{dict(message.headers)}, so nothing was put",
                    hint="Bind a queue to it, or name a queue for such messages: unrouted=...",
                    route=route,
                )
            queues.append(found or [str(self.unrouted)])
            for name in queues[-1]:
                self._queues[name].check(message)
                parts.setdefault(name, []).append(message)
        if parts:
            together = [(self._queues[name], some) for name, some in parts.items()]
            put_together(together, self._clock, timeout)
        return queues
