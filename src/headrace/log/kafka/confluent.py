"""The Confluent wire format: a zero byte, the id of a schema in four bytes, and the value."""

from __future__ import annotations

from headrace.log.kafka.registry import Registered

HEADER_BYTES = 5
SHORT = f"it is shorter than the {HEADER_BYTES} bytes before a value in the Confluent wire format"
BAD_MAGIC = "its first byte is not the 0 of the Confluent wire format"


def header_of(number: int) -> bytes:
    """The bytes before a value of that schema."""
    return number.to_bytes(HEADER_BYTES, "big")


def refused(number: int, found: Registered | None, kind: str) -> str | None:
    """The reason why records of a schema cannot be read, unless the schema is of that kind."""
    if found is None:
        return f"the schema registry has no schema {number}"
    if found.kind != kind:
        return f"schema {number} is {found.kind}, and not {kind}"
    return None
