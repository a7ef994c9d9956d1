"""Keys of rows as texts that readers of another store write by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from headrace.log.kafka.rows_json import JsonRows


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
