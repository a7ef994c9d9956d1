"""Marks: the place in the log of a verification, and the keys that differed then, as plain data."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

Mark = Mapping[str, Any]
"""The place where the next verification of changes begins. An empty one begins with everything."""

MOST_KEYS = 10_000
"""Differing keys that a mark has. If there are more, everything is compared again."""


def with_differing(mark: Mark, keys: pa.Table) -> Mark:
    """A mark with the keys whose rows differ, so that they are compared again."""
    if not mark or len(keys) > MOST_KEYS:
        return {}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema) as writer:
        writer.write_table(keys)
    return {**mark, "differing": base64.b64encode(sink.getvalue()).decode()}


def differing_in(mark: Mark, schema: pa.Schema) -> pa.Table | None:
    """The keys that differed; None if the mark has none of these columns."""
    data = base64.b64decode(mark.get("differing", ""))
    if not data:
        return None
    keys = pa.ipc.open_stream(data).read_all()
    return keys if keys.schema.equals(schema) else None
