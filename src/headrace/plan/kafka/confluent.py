"""The Confluent wire format, as Spark reads it.

Spark reads Avro with a schema that is part of its plan. So the plan has a branch for each schema
that is known when the query starts, and fails on any other.
"""

from __future__ import annotations

from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from headrace.log import Topic
from headrace.log.dead_letter import UNREADABLE
from headrace.log.kafka.avro_projection import READ, Projection, Unfit
from headrace.log.kafka.confluent import BAD_MAGIC, HEADER_BYTES, SHORT, header_of, refused
from headrace.plan.kafka.formats import ROW, Format, is_whole, parsed
from headrace.plan.kafka.schemas import Schemas, fail_as_new
from headrace.schema.ddl import format_schema, format_type
from headrace.schema.widening import nullable


class _Wire(Format):
    """A value behind the header of the wire format."""

    def _rest(self) -> Column:
        return F.expr(f"substring(value, {HEADER_BYTES + 1})")

    def _header(self) -> Column:
        return F.expr(f"substring(value, 1, {HEADER_BYTES})")

    def _number(self) -> Column:
        return F.conv(F.hex(F.expr("substring(value, 2, 4)")), 16, 10)

    def _framed(self) -> Column:
        """True if the record has a header."""
        long_enough = F.octet_length("value") >= F.lit(HEADER_BYTES)
        return long_enough & (F.expr("substring(value, 1, 1)") == F.lit(b"\0"))

    def _fault(self, otherwise: Column) -> Column:
        short = F.octet_length("value") < F.lit(HEADER_BYTES)
        return (
            F.when(short, F.lit(f"{UNREADABLE}: {SHORT}"))
            .when(~self._framed(), F.lit(f"{UNREADABLE}: {BAD_MAGIC}"))
            .otherwise(F.concat(F.lit(f"{UNREADABLE}: "), otherwise))
        )


class JsonWire(_Wire):
    """JSON behind a header. Its schema says nothing that is needed to read it."""

    def row(self) -> Column:
        return F.when(self._framed(), parsed(self._rest(), format_schema(self.columns)))

    def decodes(self) -> Column:
        return is_whole(F.col(ROW)) & F.is_valid_utf8(self._rest())

    def fault(self) -> Column:
        return self._fault(F.lit("it is not JSON with the declared columns"))

    def text(self) -> Column:
        return self._rest().cast("string")


class AvroWire(_Wire):
    """Avro behind a header, in any schema that can be projected onto the topic's columns."""

    def __init__(self, topic: Topic, columns: pa.Schema, schemas: Schemas) -> None:
        super().__init__(topic, columns)
        self._schemas = schemas

    @cached_property
    def _projections(self) -> dict[int, Projection | str]:
        """How to read each known id, or why it cannot be read."""
        return {number: self._projected(number) for number in self._schemas}

    def _projected(self, number: int) -> Projection | str:
        if (reason := refused(number, self._schemas[number], "AVRO")) is not None:
            return reason
        found = self._schemas[number]
        assert found is not None
        try:
            return Projection(found.text, self.columns)
        except Unfit as error:
            return f"schema {number}: {error}"

    def checked(self, records: DataFrame) -> DataFrame:
        """Fail on an id that is not known: its schema may be in the registry."""
        known = self._header().isin([header_of(number) for number in self._schemas])
        judged = F.col("value").isNull() | ~self._framed() | known
        return records.where(
            F.when(judged, F.lit(True)).otherwise(fail_as_new(self.topic, self._number()))
        )

    def row(self) -> Column:
        kind = pa.struct([pa.field(f.name, nullable(f.type)) for f in self.columns])
        wanted = pa.struct([*kind, pa.field(READ, pa.int32())])
        nothing = F.lit(None).cast(format_type(wanted))

        def branch(otherwise: Column, known: tuple[int, Projection | str]) -> Column:
            number, found = known
            if isinstance(found, str):
                return otherwise
            options = {"mode": "PERMISSIVE", "avroSchema": found.reader}
            row = from_avro(self._rest(), found.writer, options).cast(format_type(wanted))
            return F.when(self._header() == F.lit(header_of(number)), row).otherwise(otherwise)

        return reduce(branch, self._projections.items(), nothing)

    def decodes(self) -> Column:
        return F.col(f"{ROW}.{READ}").isNotNull()

    def fault(self) -> Column:
        other = F.concat(F.lit("it is not Avro of schema "), self._number())
        for number, found in self._projections.items():
            if isinstance(found, str):
                is_it = self._header() == F.lit(header_of(number))
                other = F.when(is_it, F.lit(found)).otherwise(other)
        return self._fault(other)

    def text(self) -> Column:
        return F.to_json(F.struct(*(F.col(f"{ROW}.`{name}`") for name in self.columns.names)))
