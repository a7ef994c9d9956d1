"""The topics that a real-time query writes to, and the record that a row becomes in each.

A record has its topic's key and format, in the same bytes that the rest of headrace writes. So
Java's producer chooses the same partition as headrace's own, and a key stays in one partition.

A query has one output, and Spark reads a topic once for it. So a dead letter or a late row becomes
the record of its side output early, and travels in the column BESIDE, past all operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyarrow import types
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from headrace.errors import InvalidPipeline
from headrace.log import Topic
from headrace.log.conform import null_key
from headrace.log.kafka.avro import avro_schema
from headrace.log.kafka.rows_bytes import own_bytes
from headrace.plan.metadata import BESIDE
from headrace.plan.steps import Step
from headrace.runtime.realtime.qualify import Reason, refused
from headrace.schema.ddl import format_type
from headrace.schema.widening import INTEGERS, fits, nullable

_PLAIN_SCALE = 6
"""The largest scale of a decimal that is never written with an exponent."""

_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
_ELSEWHERE = "Publish to a topic of another name"


class Outlet:
    """A topic that a step writes to. A step that cannot write to it is refused.

    A missing topic is created as for any step: with JSON, and without a key.
    """

    def __init__(self, step: Step, name: str, there: Mapping[str, Topic]) -> None:
        self._step = step
        self._topic = there.get(name) or Topic(name, 1)
        if self._topic.settings.compacts and self._topic.key is None:
            raise self._refusal(
                f"topic {name!r} is compacted and has no key, so Kafka refuses its records",
                f"Use cleanup=delete there. {_ELSEWHERE}, and it is created",
            )

    def record(
        self, schema: pa.Schema, columns: Sequence[Column], origin: Column | None = None
    ) -> Column:
        """A row as a record of Spark's Kafka sink; `columns` are those of `schema`, in its order.

        Rows without a key keep their order if `origin` has their input partition.
        """
        topic = self._topic
        given = dict(zip(schema.names, columns, strict=True))
        if topic.schema is not None:
            given = {
                field.name: self._fitted(field, schema.field(field.name), given[field.name])
                for field in topic.schema
                if self._has(field, given)
            }
            schema = pa.schema([topic.schema.field(name) for name in given])
        place = F.lit(None)
        if topic.key is None and origin is not None and topic.partitions > 1:
            place = origin % F.lit(topic.partitions)
        return F.struct(
            F.lit(topic.name).alias("topic"),
            self._key(schema, given).cast("binary").alias("key"),
            self._value(schema, given).cast("binary").alias("value"),
            place.cast("int").alias("partition"),
        )

    def _value(self, schema: pa.Schema, given: Mapping[str, Column]) -> Column:
        topic = self._topic
        if topic.settings.format == "bytes" and topic.schema is not None:
            return given[own_bytes(topic.schema).name]
        if topic.settings.format == "avro" and topic.schema is not None:
            nothing = {f.name: F.lit(None).cast(format_type(f.type)) for f in topic.schema}
            row = F.struct(*(c.alias(name) for name, c in {**nothing, **given}.items()))
            return to_avro(row, avro_schema(topic.schema))
        return as_json(*(_in_json(field, given[field.name]).alias(field.name) for field in schema))

    def _key(self, schema: pa.Schema, given: Mapping[str, Column]) -> Column:
        name = self._topic.key
        if name is None:
            return F.lit(None)
        if name not in given:
            raise self._refusal(f"it does not write {name!r}, the key of {self._topic.name!r}")
        made = _key_bytes(given[name], schema.field(name).type)
        if made is None:
            raise self._refusal(
                f"Spark would write {name!r}, the key of {self._topic.name!r}, in other bytes than "
                f"headrace: it is {format_type(schema.field(name).type)}",
                f"{_ELSEWHERE}, with another key. In micro-batches it can be written",
            )
        return _or_fail(made, null_key(self._topic).message)

    def _has(self, field: pa.Field, given: Mapping[str, Column]) -> bool:
        """True if a step writes a column of the topic. If not, the column has to be nullable."""
        if field.name not in given and not field.nullable:
            raise self._refusal(
                f"it does not write {field.name!r}, which is never null in {self._topic.name!r}"
            )
        return field.name in given

    def _fitted(self, wanted: pa.Field, given: pa.Field, column: Column) -> Column:
        """A column with the type that the topic has."""
        name, its, mine = wanted.name, nullable(wanted.type), nullable(given.type)
        if not fits(mine, its):
            raise self._refusal(
                f"its {name!r} is {format_type(mine)}, and in topic {self._topic.name!r} it is "
                f"{format_type(its)}",
                f"{_ELSEWHERE}, or cast it in hr.select(...)",
            )
        if mine != its:
            column = column.cast(format_type(its))
        if wanted.nullable or name == self._topic.key:
            return column
        why = f"Column {name!r} of topic {self._topic.name!r} is not null, and a row has a null"
        return _or_fail(column, why)

    def _refusal(self, why: str, instead: str = _ELSEWHERE) -> InvalidPipeline:
        return refused(self._step.name, Reason(why, instead, self._step.stream.where))


def as_json(*columns: Column) -> Column:
    """Columns as the JSON of a row in a topic."""
    return F.to_json(F.struct(*columns), _JSON)


def written(rows: DataFrame, record: Column) -> DataFrame:
    """The records to write: the side output's of a row that has one, else `record`."""
    records = rows.select(F.coalesce(F.col(BESIDE), record).alias(BESIDE))
    return records.select(f"{BESIDE}.*")


def _or_fail(column: Column, why: str) -> Column:
    """A column that stops the step where it is null."""
    return F.when(column.isNull(), F.raise_error(F.lit(why))).otherwise(column)


def _in_json(field: pa.Field, column: Column) -> Column:
    """A column for JSON: a decimal is a string, since readers may parse numbers as floats."""
    return column.cast("string") if types.is_decimal(field.type) else column


def _key_bytes(column: Column, kind: pa.DataType) -> Column | None:
    """The same bytes as `key_bytes` of the log's partitioner; None if Spark cannot make them."""
    if types.is_string(kind) or types.is_binary(kind):
        return column.cast("binary")
    if types.is_decimal(kind) and 0 <= kind.scale <= _PLAIN_SCALE:
        return column.cast("string").cast("binary")
    if types.is_boolean(kind):
        return _big_endian(column.cast("int"), 1)
    if kind in INTEGERS:
        return _big_endian(column, kind.bit_width // 8)
    if types.is_date(kind):
        return _big_endian(F.unix_date(column), 4)
    if types.is_timestamp(kind) and kind.tz is not None:
        return _big_endian(F.unix_micros(column), 8)
    if types.is_timestamp(kind):
        epoch = F.lit("1970-01-01").cast("timestamp_ntz")
        return _big_endian(F.timestamp_diff("MICROSECOND", epoch, column), 8)
    return None


def _big_endian(number: Column, width: int) -> Column:
    digits = F.lpad(F.hex(number.cast("bigint")), 16, "0")
    return F.unhex(F.substring(digits, 17 - 2 * width, 2 * width))
