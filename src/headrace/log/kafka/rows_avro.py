"""Rows as Avro, which Spark's `from_avro` with `avro_schema` reads as the same values."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa

from headrace.log.kafka.avro import avro_schema
from headrace.log.kafka.rows_bytes import Garbage, HeadersOf, no_headers
from headrace.log.rows import check_of

NOT_AVRO = "it is not Avro of this schema"


class AvroRows:
    """The codec of one schema's rows as Avro without a header."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._avro = fastavro.parse_schema(json.loads(avro_schema(schema)))
        self._maps = [field.name for field in schema if _has_map(field.type)]
        self._checks = [(field.name, check_of(field.type)) for field in schema]

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        rows = _timeless(batch).to_pylist()
        for name in self._maps:
            kind = self._schema.field(name).type
            for row in rows:
                row[name] = _dicts(row[name], kind)
        encoded = []
        for row in rows:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, self._avro, row)
            encoded.append(out.getvalue())
        return encoded

    def decode(
        self, values: Sequence[bytes], odd: set[str], headers: HeadersOf = no_headers
    ) -> list[pa.Array]:
        rows = []
        for index, value in enumerate(values):
            data = io.BytesIO(value)
            try:
                row = fastavro.schemaless_reader(data, self._avro, None)
                if not isinstance(row, dict) or data.tell() != len(value):
                    raise ValueError(f"{len(value) - data.tell()} bytes are left over")
                rows.append(
                    [
                        None if row[name] is None else check(row[name])
                        for name, check in self._checks
                    ]
                )
            except Exception as error:  # fastavro may raise any error on bad input
                raise Garbage(index, NOT_AVRO, f"{NOT_AVRO}: {error!r}") from None
        columns = zip(*rows, strict=True) if rows else ([] for _ in self._schema)
        return [
            pa.array(list(column), field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]


def _timeless(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with times as numbers, like Avro's: a window may end after 9999."""
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(
        _has_map(kind.field(i).type) for i in range(kind.num_fields)
    )


def _dicts(value: Any, kind: pa.DataType) -> Any:
    """The value with dicts in place of maps, which Arrow represents as pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _dicts(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_dicts(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _dicts(value[field.name], field.type) for field in kind}
    return value
