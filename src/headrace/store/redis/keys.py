"""The keys of rows in Redis, as readers write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from headrace.log.kafka.rows_json import JsonRows
from headrace.store.redis.connection import Client

AT_ONCE = 1_000
"""Keys in one command. A client's buffer and a scan's answer stay small."""

T = TypeVar("T")


def key_texts(keys: pa.Table) -> list[str]:
    """Keys as texts, of which no two are equal."""
    codec = JsonRows(keys.schema)
    texts = [text for batch in keys.to_batches() for text in codec.encode(batch)]
    return [key_text(list(orjson.loads(text).values())) for text in texts]


def key_text(values: Sequence[Any]) -> str:
    """A key as readers write it: one value as it is, several as a JSON array.

    A null, or a text that begins like an array, is an array of one.
    """
    if len(values) == 1 and values[0] is not None:
        (value,) = values
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        if not text.startswith("["):
            return text
    return orjson.dumps(values).decode()


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
