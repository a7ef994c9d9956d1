"""CloudEvents on Kafka: their columns, and the words for records that are none.

A column `ce_NAME` is the attribute NAME of an event, any other column a field of its data. In
structured mode, a record's value is a JSON object of both. In binary mode, the value is the data,
and the attributes are headers of the same names as the columns.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.errors import InvalidSchema

PREFIX = "ce_"
VERSION = "specversion"
CONTENT_TYPE = "content-type"
"""The header that has the attribute `datacontenttype` in binary mode."""

NOT_JSON = (
    "it has no header ce_specversion, and is not the JSON of a CloudEvent with the declared columns"
)
NO_VERSION = "it is not a CloudEvent of version 1: its specversion is "
BAD_DATA = "its data is not JSON with the declared columns"
BAD_ATTRIBUTE = "its attribute cannot be read as declared: "

_DATA = ("ce_data", "ce_data_base64")


def attribute(column: str) -> str | None:
    """The attribute that a column has; None for a field of the data."""
    return column.removeprefix(PREFIX) if column.startswith(PREFIX) else None


def header(column: str) -> str:
    """The header that has an attribute in binary mode."""
    return CONTENT_TYPE if column == "ce_datacontenttype" else column


def check_event_columns(schema: pa.Schema) -> None:
    """Raise unless the columns can be those of events."""
    for field in schema:
        if field.name in _DATA:
            raise InvalidSchema(
                f"The column {field.name!r} would be the data of a CloudEvent as a whole",
                hint="Declare the fields of the data as columns of their own, by their names",
                column=field.name,
            )
        if attribute(field.name) is not None and pa.types.is_nested(field.type):
            raise InvalidSchema(
                f"The column {field.name!r} is an attribute of a CloudEvent, which is never nested",
                hint="Use string, timestamp, int or boolean",
                column=field.name,
            )
