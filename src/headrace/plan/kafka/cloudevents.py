"""CloudEvents, as Spark reads them, in structured and in binary mode."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.log.dead_letter import UNREADABLE
from headrace.log.kafka.cloudevents import (
    BAD_ATTRIBUTE,
    BAD_DATA,
    NO_VERSION,
    NOT_JSON,
    PREFIX,
    VERSION,
    attribute,
    header,
)
from headrace.plan.kafka.formats import ROW, Format, is_whole, parsed
from headrace.schema.ddl import format_schema, format_type

HEADERS = "headers"
"""The column of a record's headers, if Spark is asked for it."""

_WHY = "_why"
"""A column of a row: the reason why its record does not decode."""


class CloudEvents(Format):
    """Events with their attributes in the columns `ce_...`, and the fields of their data."""

    by_headers = True

    def row(self) -> Column:
        value = F.col("value")
        binary = _header(f"{PREFIX}{VERSION}").isNotNull()
        event, data = parsed(value, self._event), parsed(value, format_schema(self._data))
        columns = []
        for field in self.columns:
            name = attribute(field.name)
            if name is None:
                here, there = data[field.name], event["data"][field.name]
            else:
                here = _header(header(field.name)).try_cast(format_type(field.type))
                there = event[name]
            columns.append(F.when(binary, here).otherwise(there).alias(field.name))
        utf8 = F.is_valid_utf8("value")
        version = F.when(binary, _header(f"{PREFIX}{VERSION}")).otherwise(event[VERSION])
        why = F.when(~binary & ~(is_whole(event) & utf8), F.lit(NOT_JSON))
        why = why.when(
            ~F.coalesce(version, F.lit("")).startswith("1."),
            F.concat(F.lit(NO_VERSION), F.coalesce(version, F.lit("missing"))),
        )
        if len(self._data):
            why = why.when(binary & ~(is_whole(data) & utf8), F.lit(BAD_DATA))
        for column, text in self._misread():
            why = why.when(binary & text, F.lit(f"{BAD_ATTRIBUTE}{column}"))
        return F.struct(*columns, why.alias(_WHY))

    def decodes(self) -> Column:
        return F.col(f"{ROW}.{_WHY}").isNull() & F.col("value").isNotNull()

    def fault(self) -> Column:
        return F.concat(F.lit(f"{UNREADABLE}: "), F.col(f"{ROW}.{_WHY}"))

    def text(self) -> Column:
        row = F.struct(*(F.col(f"{ROW}.`{name}`") for name in self.columns.names))
        return F.when(_header(f"{PREFIX}{VERSION}").isNotNull(), F.to_json(row))

    @property
    def _data(self) -> pa.Schema:
        return pa.schema([field for field in self.columns if attribute(field.name) is None])

    @property
    def _event(self) -> str:
        """The columns of an event in structured mode, as DDL."""
        fields = [pa.field(VERSION, pa.string())]
        for field in self.columns:
            if (name := attribute(field.name)) not in (None, VERSION):
                fields.append(pa.field(name, field.type))
        if len(self._data):
            fields.append(pa.field("data", pa.struct(list(self._data))))
        return format_schema(pa.schema(fields))

    def _misread(self) -> Iterator[tuple[str, Column]]:
        """The attributes that are not text, and for each if a header cannot be read as one."""
        for field in self.columns:
            if attribute(field.name) is not None and not pa.types.is_string(field.type):
                text = _header(header(field.name))
                yield field.name, text.isNotNull() & text.try_cast(format_type(field.type)).isNull()


def _header(name: str) -> Column:
    """A header of a record as text."""
    found = F.get(F.filter(HEADERS, lambda each: F.lower(each["key"]) == F.lit(name)), F.lit(0))
    return found["value"].cast("string")
