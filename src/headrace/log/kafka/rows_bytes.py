"""Rows that are a record's raw bytes: one column, and times of arrival.

Also the error of every format for bytes that are not a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from headrace.errors import InvalidSchema

NOT_TEXT = "it is not UTF-8 text"

HeadersOf = Callable[[int], Sequence[tuple[str, bytes | None]]]
"""Gives the headers of the record at an index."""


def no_headers(index: int) -> Sequence[tuple[str, bytes | None]]:
    """The headers of a record that has none."""
    return ()


class Garbage(Exception):
    """The value at `index` is not a row of the schema.

    `reason` is one of few, by which dead letters are counted; `detail` says more about this value.
    """

    def __init__(
        self, index: int, reason: str, detail: str = "", *, column: str | None = None
    ) -> None:
        super().__init__(detail or reason)
        self.index = index
        self.reason = reason
        self.detail = detail or reason
        self.column = column


class BytesRows:
    """The codec of rows with one column of bytes and optional columns of times."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._own = own_bytes(schema)

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        values: list[bytes] = batch.column(self._own.name).cast(pa.binary()).to_pylist()
        return values

    def decode(
        self, values: Sequence[bytes], odd: set[str], headers: HeadersOf = no_headers
    ) -> list[pa.Array]:
        return [self._column(field, values) for field in self._schema]

    def _column(self, field: pa.Field, values: Sequence[bytes]) -> pa.Array:
        if field.name != self._own.name:
            return pa.nulls(len(values), field.type)
        if pa.types.is_string(field.type):
            for index, value in enumerate(values):
                try:
                    value.decode()
                except UnicodeDecodeError as error:
                    raise Garbage(index, NOT_TEXT, f"{NOT_TEXT}: {error}") from None
        return pa.array(values, pa.binary()).cast(field.type)


def own_bytes(schema: pa.Schema) -> pa.Field:
    """The column of the bytes. Raises `InvalidSchema` unless there is exactly one."""
    own = [f for f in schema if pa.types.is_string(f.type) or pa.types.is_binary(f.type)]
    times = [f for f in schema if pa.types.is_timestamp(f.type) and f.nullable]
    if len(own) != 1 or own[0].nullable or len(own) + len(times) != len(schema):
        raise InvalidSchema(
            "With format=bytes, one column holds the bytes, and all others must be nullable "
            "timestamps",
            hint="Declare columns like 'line string not null, at timestamp', or use binary",
        )
    return own[0]
