"""Change events of Debezium, as Spark reads them, with Kafka Connect's schemas or without."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.clock import FIRST_MOMENT, LAST_MOMENT
from headrace.log.dead_letter import UNREADABLE
from headrace.log.kafka.debezium import (
    DECIMAL,
    MICROS,
    NO_ROW,
    NOT_CHANGE,
    OPERATIONS,
    PLACEHOLDER,
    PLACEHOLDER_BYTES,
    TRUNCATE,
    UNREAD,
    UNSENT,
    is_converted,
)
from headrace.plan.kafka.formats import ROW, Format, is_whole, parsed
from headrace.schema.ddl import format_type

_EVENT = "_event"
_WHY = "_why"

_FIELD = "struct<field: string, name: string, parameters: map<string, string>>"
_SCHEMA = f"struct<fields: array<struct<field: string, fields: array<{_FIELD}>>>>"
_SOURCE = (
    "struct<connector: string, name: string, db: string, schema: string, table: string, "
    "lsn: string, file: string, pos: string, scn: string, change_lsn: string, txId: string, "
    "gtid: string, snapshot: string, ts_ms: bigint, ts_us: bigint>"
)
_TRANSACTION = "struct<id: string, total_order: bigint>"


class DebeziumJson(Format):
    """Change events in JSON. The key is that of the record, without its schema."""

    inputs = ("key", _EVENT)

    def checked(self, records: DataFrame) -> DataFrame:
        """The records with their key as text, and the event parsed once."""
        payload = F.get_json_object(F.col("key").cast("string"), "$.payload")
        text = F.when(F.is_valid_utf8("key"), F.coalesce(payload, F.col("key").cast("string")))
        key = F.coalesce(text, F.hex("key")).cast("binary")
        kept = (name for name in records.columns if name != "key")
        return records.select(
            *kept, key.alias("key"), parsed(F.col("value"), self._ddl).alias(_EVENT)
        )

    def row(self) -> Column:
        there = {name: self._member(name) for name in ("op", "ts_ms")}
        there["key"] = F.col("key").cast("string")
        there["source"] = self._source
        for name in ("before", "after"):
            if name in self.columns.names:
                there[name] = self._image(name)
        columns = [there[name].alias(name) for name in self.columns.names]
        return F.struct(*columns, self._why.alias(_WHY))

    def decodes(self) -> Column:
        return F.col(f"{ROW}.{_WHY}").isNull() & F.col("value").isNotNull()

    def fault(self) -> Column:
        return F.concat(F.lit(f"{UNREADABLE}: "), F.col(f"{ROW}.{_WHY}"))

    @property
    def _why(self) -> Column:
        op, after, before = (self._member(name) for name in ("op", "after", "before"))
        whole = is_whole(F.col(_EVENT)) & F.is_valid_utf8("value")
        lacks = F.when(op == F.lit("d"), before.isNull()).otherwise(after.isNull())
        why = (
            F.when(op == F.lit("t"), F.lit(TRUNCATE))
            .when(~whole | ~F.coalesce(op.isin(*OPERATIONS), F.lit(False)), F.lit(NOT_CHANGE))
            .when(lacks, F.lit(NO_ROW))
        )
        for field in self._columns_of("after"):
            raw = after[field.name]
            why = why.when(_is_placeholder(raw, field.type), F.lit(f"{UNSENT}{field.name}"))
            if is_converted(field.type):
                bad = raw.isNotNull() & self._converted(raw, field).isNull()
                text = F.concat(F.lit(f"{UNREAD}{field.name} "), F.substring(raw, 1, 50))
                why = why.when(bad, text)
        return why

    # The parts of an event

    @cached_property
    def _ddl(self) -> str:
        """The columns of an event, with a schema around it and without."""
        fields = {"before": "string", "after": "string"}
        fields |= {"source": _SOURCE, "op": "string", "ts_ms": "bigint"}
        fields["transaction"] = _TRANSACTION
        assert self.topic.schema is not None
        for name in {"before", "after"} & set(self.topic.schema.names):
            row = [_raw(field) for field in self.topic.schema.field(name).type]
            fields[name] = format_type(pa.struct(row))
        payload = ", ".join(f"{name}: {kind}" for name, kind in fields.items())
        event = ", ".join(f"{name} {kind}" for name, kind in fields.items())
        return f"schema {_SCHEMA}, payload struct<{payload}>, {event}"

    def _columns_of(self, name: str) -> list[pa.Field]:
        """The declared columns in a part of the event that is read."""
        return list(self.columns.field(name).type) if name in self.columns.names else []

    def _member(self, name: str) -> Column:
        return F.coalesce(F.col(_EVENT)["payload"][name], F.col(_EVENT)[name])

    def _image(self, name: str) -> Column:
        """The row before or after the change."""
        made = self._member(name)
        values = []
        for field in self._columns_of(name):
            raw = made[field.name]
            value = self._converted(raw, field) if is_converted(field.type) else raw
            sent = F.when(~F.coalesce(_is_placeholder(raw, field.type), F.lit(False)), value)
            values.append(sent.alias(field.name))
        return F.when(made.isNotNull(), F.struct(*values))

    def _converted(self, raw: Column, field: pa.Field) -> Column:
        """A value in the declared type, null if it is not one. `raw` is its text."""
        described = self._described(field.name)
        if pa.types.is_timestamp(field.type):
            return _timestamp(raw, described["name"], field.type)
        if pa.types.is_date(field.type):
            return F.coalesce(F.date_from_unix_date(raw.try_cast("int")), raw.try_cast("date"))
        return _decimal(raw, described, field.type)

    def _described(self, column: str) -> Column:
        """The type that Kafka Connect's schema gives a column; null without a schema."""
        rows = F.filter(F.col(_EVENT)["schema"]["fields"], lambda f: f["field"] == F.lit("after"))
        fields = F.get(rows, F.lit(0))["fields"]
        return F.get(F.filter(fields, lambda f: f["field"] == F.lit(column)), F.lit(0))

    @property
    def _source(self) -> Column:
        """The origin of a change, in the fields that headrace's own captures write."""
        given, done = self._member("source"), self._member("transaction")
        place = F.concat(given["file"], F.lit(":"), given["pos"])
        snapshot = F.when(given["snapshot"] == F.lit("incremental"), F.lit("incremental")).when(
            given["snapshot"] != F.lit("false"), F.lit("initial")
        )
        micros = F.coalesce(given["ts_us"], given["ts_ms"] * F.lit(1000))
        known = {
            **{
                name: given[name]
                for name in ("connector", "name", "db", "schema", "table", "ts_ms")
            },
            "position": F.coalesce(given["lsn"], place, given["change_lsn"], given["scn"]),
            "tx": F.coalesce(done["id"], given["txId"], given["gtid"]),
            "order": done["total_order"],
            "snapshot": snapshot,
            "ts_us": micros,
        }
        fields = [_cast(known, field) for field in self._columns_of("source")]
        return F.when(given.isNotNull(), F.struct(*fields)) if fields else F.lit(None)


def _cast(known: Mapping[str, Column], field: pa.Field) -> Column:
    return known.get(field.name, F.lit(None)).cast(format_type(field.type)).alias(field.name)


def _raw(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.string() if is_converted(field.type) else field.type)


def _is_placeholder(raw: Column, kind: pa.DataType) -> Column:
    if is_converted(kind) or pa.types.is_string(kind):
        return raw.isin(PLACEHOLDER, PLACEHOLDER_BYTES)
    if pa.types.is_binary(kind):
        return raw == F.lit(PLACEHOLDER.encode())
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        return raw == F.array(F.lit(PLACEHOLDER))
    return F.lit(False)


def _timestamp(raw: Column, meaning: Column, kind: pa.DataType) -> Column:
    """A time from a number whose unit the schema names, or from a text."""

    def branch(otherwise: Column, unit: tuple[str, tuple[int, int]]) -> Column:
        name, (factor, divisor) = unit
        number = F.try_multiply(raw.try_cast("bigint"), F.lit(factor))
        micros = F.floor(number / F.lit(divisor)).cast("bigint") if divisor > 1 else number
        inside = F.when(micros.between(FIRST_MOMENT, LAST_MOMENT), micros)
        return F.when(meaning == F.lit(name), F.timestamp_micros(inside)).otherwise(otherwise)

    made = reduce(branch, MICROS.items(), raw.try_cast("timestamp"))
    return made.cast(format_type(kind))


def _decimal(raw: Column, described: Column, kind: pa.DataType) -> Column:
    """A decimal from the bytes of its digits, with the scale beside it or in the schema."""
    own = F.get_json_object(raw, "$.value")
    scale = F.coalesce(F.get_json_object(raw, "$.scale"), described["parameters"]["scale"])
    is_bytes = own.isNotNull() | (described["name"] == F.lit(DECIMAL))
    written = _with_point(_integer(F.coalesce(own, raw)), scale.try_cast("int"))
    text = F.when(is_bytes, written).otherwise(raw)
    digits = F.rtrim(F.regexp_extract(text, r"\.([0-9]*)$", 1), F.lit("0"))
    return F.when(F.length(digits) <= kind.scale, text.try_cast(format_type(kind)))


def _integer(text: Column) -> Column:
    """The integer whose two's complement some text is in Base64, of at most 16 bytes."""
    digits = F.hex(F.try_to_binary(text, F.lit("base64")))
    sign = F.when(F.substring(digits, 1, 1) >= F.lit("8"), F.lit("F")).otherwise(F.lit("0"))
    full = F.concat(F.repeat(sign, F.greatest(32 - F.length(digits), F.lit(0))), digits)
    high = F.conv(F.substring(full, 1, 16), 16, -10).cast("decimal(20, 0)")
    low = F.conv(F.substring(full, 17, 16), 16, 10).cast("decimal(20, 0)")
    made = F.try_add(F.try_multiply(high, F.lit(str(1 << 64)).cast("decimal(20, 0)")), low)
    return F.when(F.length(digits).between(2, 32), made)


def _with_point(number: Column, scale: Column) -> Column:
    """An integer as text, with so many of its digits after the point."""
    text = F.abs(number).cast("string")
    full = F.concat(F.repeat(F.lit("0"), F.greatest(scale + 1 - F.length(text), F.lit(0))), text)
    whole = F.substr(full, F.lit(1), F.length(full) - scale)
    after = F.substr(full, F.length(full) - scale + 1)
    sign = F.when(number < 0, F.lit("-")).otherwise(F.lit(""))
    return F.when(scale >= 0, F.concat(sign, whole, F.lit("."), after))
