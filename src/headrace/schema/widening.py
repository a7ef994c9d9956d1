"""Types that hold every value of another type."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]


def fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """True if a type can hold every value of another type."""
    if given in INTEGERS and wanted in INTEGERS:
        return INTEGERS.index(given) <= INTEGERS.index(wanted)
    if types.is_floating(given) and types.is_floating(wanted):
        return bool(given.bit_width <= wanted.bit_width)
    if types.is_decimal(given) and types.is_decimal(wanted):
        return bool(given.scale == wanted.scale and given.precision <= wanted.precision)
    if types.is_list(given) and types.is_list(wanted):
        return fits(given.value_type, wanted.value_type)
    if types.is_map(given) and types.is_map(wanted):
        same = fits(given.key_type, wanted.key_type)
        return same and fits(given.item_type, wanted.item_type)
    if types.is_struct(given) and types.is_struct(wanted):
        return [field.name for field in given] == [field.name for field in wanted] and all(
            fits(mine.type, its.type) for mine, its in zip(given, wanted, strict=True)
        )
    return bool(given.equals(wanted))


def nullable(kind: pa.DataType) -> pa.DataType:
    """A type whose nested values are nullable: what Spark infers there differs by plan."""
    if types.is_list(kind):
        return pa.list_(nullable(kind.value_type))
    if types.is_map(kind):
        return pa.map_(kind.key_type, nullable(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, nullable(field.type)) for field in kind])
    return kind
