"""Rows in the Confluent wire format, which Spark with `plan.kafka.confluent` reads as the same."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa

from headrace.errors import Unsupported
from headrace.log.kafka.avro import avro_schema
from headrace.log.kafka.avro_projection import Projection, Unfit
from headrace.log.kafka.confluent import BAD_MAGIC, HEADER_BYTES, SHORT, refused
from headrace.log.kafka.registry import Registry
from headrace.log.kafka.rows_bytes import Garbage, HeadersOf, no_headers
from headrace.log.kafka.rows_json import JsonRows
from headrace.log.rows import check_of


def read_only(format: str) -> Unsupported:
    """The error for a row that is to be written in a format that headrace only reads."""
    return Unsupported(
        f"headrace reads the format {format}, and does not write it",
        hint="Write to a topic with format=json or avro",
        capability="writing the format",
    )


class ConfluentJsonRows(JsonRows):
    """JSON behind the header of the wire format."""

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        raise read_only("json-confluent")

    def decode(
        self, values: Sequence[bytes], odd: set[str], headers: HeadersOf = no_headers
    ) -> list[pa.Array]:
        return super().decode([_framed(i, value)[1] for i, value in enumerate(values)], odd)


class ConfluentAvroRows:
    """Avro behind the header of the wire format, in the schemas of a registry."""

    def __init__(self, schema: pa.Schema, registry: Registry | None) -> None:
        avro_schema(schema)  # refuses names that no record in Avro can have
        self._schema = schema
        self._registry = registry
        self._projections: dict[int, Projection] = {}
        self._checks = [(field.name, check_of(field.type)) for field in schema]

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        raise read_only("avro-confluent")

    def decode(
        self, values: Sequence[bytes], odd: set[str], headers: HeadersOf = no_headers
    ) -> list[pa.Array]:
        rows = [self._row(index, value) for index, value in enumerate(values)]
        columns = zip(*rows, strict=True) if rows else ([] for _ in self._schema)
        return [
            pa.array(list(column), field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]

    def _row(self, index: int, value: bytes) -> list[Any]:
        number, rest = _framed(index, value)
        projection = self._projection(index, number)
        data = io.BytesIO(rest)
        try:
            row: Any = fastavro.schemaless_reader(
                data, projection.parsed_writer, projection.parsed_reader
            )
            if data.tell() != len(rest):
                raise ValueError(f"{len(rest) - data.tell()} bytes are left over")
            return [None if row[n] is None else check(row[n]) for n, check in self._checks]
        except Exception as error:  # fastavro may raise any error on bad input
            reason = f"it is not Avro of schema {number}"
            raise Garbage(index, reason, f"{reason}: {error!r}") from None

    def _projection(self, index: int, number: int) -> Projection:
        if number not in self._projections:
            assert self._registry is not None
            found = self._registry.schema(number)
            if (reason := refused(number, found, "AVRO")) is not None:
                raise Garbage(index, reason)
            assert found is not None
            try:
                self._projections[number] = Projection(found.text, self._schema)
            except Unfit as error:
                raise Garbage(index, f"schema {number}: {error}") from None
        return self._projections[number]


def _framed(index: int, value: bytes) -> tuple[int, bytes]:
    """The id of a schema, and the value after it."""
    if len(value) < HEADER_BYTES:
        raise Garbage(index, SHORT)
    if value[0] != 0:
        raise Garbage(index, BAD_MAGIC)
    return int.from_bytes(value[1:HEADER_BYTES], "big"), value[HEADER_BYTES:]
