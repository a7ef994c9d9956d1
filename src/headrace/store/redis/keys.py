"""Many keys of Redis, in commands of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from headrace.store.redis.connection import Client

AT_ONCE = 1_000
"""Keys in one command. A client's buffer and a scan's answer stay small."""

T = TypeVar("T")


def scanned(client: Client, pattern: str) -> Iterator[list[bytes]]:
    """The keys that match a pattern, some at a time. A key may come twice."""
    cursor = 0
    while True:
        cursor, keys = client.scan(cursor, match=pattern, count=AT_ONCE)
        if keys:
            yield keys
        if cursor == 0:
            return


def stored(client: Client, keys: list[str]) -> list[bytes]:
    """The values that are stored with some of these keys."""
    found = (value for some in slices(keys) for value in client.mget(some))
    return [value for value in found if value is not None]


def slices(values: list[T]) -> Iterator[list[T]]:
    """The values in parts for one command each."""
    for first in range(0, len(values), AT_ONCE):
        yield values[first : first + AT_ONCE]
