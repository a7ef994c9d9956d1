"""Change events of Debezium on Kafka: their columns, and the words for records that are none.

The columns are those of the envelope: `key`, `before`, `after`, `source`, `op`, `ts_ms`. A record's
value is the event, or an object with it in `payload` and Kafka Connect's `schema` beside it. Only
that schema tells in which unit a time is, and how many digits of a decimal are after the point.
"""

from __future__ import annotations

import base64

import pyarrow as pa

from headrace.errors import InvalidSchema

FORMAT = "debezium-json"

PLACEHOLDER = "__debezium_unavailable_value"
"""The value of a column that the database did not send, since it has not changed."""
PLACEHOLDER_BYTES = base64.b64encode(PLACEHOLDER.encode()).decode()

MICROS = {
    "io.debezium.time.Timestamp": (1_000, 1),
    "org.apache.kafka.connect.data.Timestamp": (1_000, 1),
    "io.debezium.time.MicroTimestamp": (1, 1),
    "io.debezium.time.NanoTimestamp": (1, 1_000),
}
"""Numbers that are times: their factor and their divisor to microseconds, by the type's name."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"

OPERATIONS = ("c", "u", "d", "r")

NOT_CHANGE = "it is not the JSON of a change event of Debezium with the declared columns"
TRUNCATE = "it truncates the table, and does not name the rows that are gone"
NO_ROW = "it has no row: a delete needs 'before', another change 'after'"
UNSENT = "it lacks a value that has not changed, which REPLICA IDENTITY FULL sends: "
UNREAD = "its value cannot be read as declared: "

_COLUMNS = ("key", "before", "after", "source", "op", "ts_ms")


def check_change_columns(schema: pa.Schema) -> None:
    """Raise unless the columns can be those of change events."""
    for field in schema:
        nested = field.name in ("before", "after", "source")
        if field.name not in _COLUMNS or nested != pa.types.is_struct(field.type):
            raise InvalidSchema(
                f"The column {field.name!r} is not one of a change event of Debezium",
                hint="app.captured(topic, schema=..., key=..., settings={'format': "
                f"'{FORMAT}'}}) declares the columns of the table, and adds those of the event",
                column=field.name,
            )


def is_converted(kind: pa.DataType) -> bool:
    """True for a type whose values Debezium writes in a form of its own."""
    types = pa.types
    return bool(types.is_timestamp(kind) or types.is_date(kind) or types.is_decimal(kind))
