"""Formats of records on Kafka, as Spark reads them: JSON, Avro and bytes."""

from __future__ import annotations

import functools
import importlib
from abc import ABC, abstractmethod

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from headrace.log import Topic
from headrace.log.dead_letter import UNREADABLE
from headrace.log.kafka.avro import avro_schema
from headrace.plan.kafka.schemas import BY_ID, Schemas
from headrace.schema.ddl import format_schema

ROW = "_row"
"""The column of the decoded row, a struct."""

_BROKEN = "_broken"


class Format(ABC):
    """The format of a topic's records, read as rows of some of its `columns`."""

    by_headers = False
    """True if the headers of a record are part of its row."""
    inputs: tuple[str, ...] = ()
    """The columns of `checked` that a row is made of, beside the value."""

    def __init__(self, topic: Topic, columns: pa.Schema) -> None:
        self.topic = topic
        self.columns = columns

    def checked(self, records: DataFrame) -> DataFrame:
        """The records as `row` needs them, in a plan that fails on one that it cannot judge."""
        return records

    @abstractmethod
    def row(self) -> Column:
        """The row of a record."""

    @abstractmethod
    def decodes(self) -> Column:
        """True if the record of a ROW decodes."""

    def fault(self) -> Column:
        """The reason why the record of a ROW does not decode, if it does not."""
        return F.lit(UNREADABLE)

    def text(self) -> Column:
        """A row as text, if its bytes are not text already."""
        return F.lit(None).cast("string")

    def _all_null(self) -> Column:
        null = [F.col(f"{ROW}.`{name}`").isNull() for name in self.columns.names]
        return functools.reduce(Column.__and__, null)


class Json(Format):
    """Objects of JSON."""

    def row(self) -> Column:
        return parsed(F.col("value"), format_schema(self.columns))

    def decodes(self) -> Column:
        return is_whole(F.col(ROW)) & F.is_valid_utf8("value")


def parsed(value: Column, schema: str) -> Column:
    """The JSON of some bytes."""
    schema = f"{schema}, {_BROKEN} string"
    return F.from_json(value.cast("string"), schema, {"columnNameOfCorruptRecord": _BROKEN})


def is_whole(row: Column) -> Column:
    """True if JSON was parsed. Spark replaces invalid UTF-8 by other characters, and is content."""
    return row.isNotNull() & row[_BROKEN].isNull()


class Avro(Format):
    """Avro without a header, in the schema of the topic."""

    def row(self) -> Column:
        assert self.topic.schema is not None
        # Avro can be read only with the whole schema it was written in.
        written, read = avro_schema(self.topic.schema), avro_schema(self.columns)
        return from_avro("value", written, {"mode": "PERMISSIVE", "avroSchema": read})

    def decodes(self) -> Column:
        return ~self._all_null()

    def text(self) -> Column:
        return F.to_json(ROW)


class Bytes(Format):
    """The bytes of a record in one column."""

    def row(self) -> Column:
        return F.struct(*map(_own, self.columns))

    def decodes(self) -> Column:
        return ~self._all_null()


def _own(field: pa.Field) -> Column:
    if pa.types.is_timestamp(field.type):
        made = F.lit(None).cast("timestamp")
    elif pa.types.is_string(field.type):
        made = F.when(F.is_valid_utf8("value"), F.col("value").cast("string"))
    else:
        made = F.col("value")
    return made.alias(field.name)


def format_of(topic: Topic, columns: pa.Schema, schemas: Schemas) -> Format:
    """The format of a topic's records, of which these columns are read."""
    name = topic.settings.format
    if name in _FORMATS:
        return _FORMATS[name](topic, columns)
    # They need this module, and a package for Avro that comes with Kafka's client.
    module, kind = _OTHERS[name]
    more = (schemas,) if name == BY_ID else ()
    made: Format = getattr(importlib.import_module(module), kind)(topic, columns, *more)
    return made


_FORMATS: dict[str, type[Format]] = {"json": Json, "avro": Avro, "bytes": Bytes}
_OTHERS = {
    BY_ID: ("headrace.plan.kafka.confluent", "AvroWire"),
    "json-confluent": ("headrace.plan.kafka.confluent", "JsonWire"),
    "cloudevents": ("headrace.plan.kafka.cloudevents", "CloudEvents"),
    "debezium-json": ("headrace.plan.kafka.debezium", "DebeziumJson"),
}
