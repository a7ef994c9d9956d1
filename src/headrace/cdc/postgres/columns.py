"""Conversion of rows as PostgreSQL writes them, in text, to Arrow and back, a column at once.

Arrow, Spark and Python agree on the years 1 to 9999, so a date or time outside of them becomes the
first or the last one that there is; so do `-infinity` and `infinity`. A NaN in a decimal becomes
null. `Converter.replaced` counts such values.
"""

from __future__ import annotations

from binascii import unhexlify
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, types

from headrace.cdc.contract import Row
from headrace.cdc.postgres.types import TABLE
from headrace.errors import SourceError

_FOUR_DIGITS: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.]+(Z|\+00)?)?$"
_BEFORE: Final = r"^-infinity$| BC$|^0000"
_FIRST: Final = "0001-01-01"
_LAST: Final = "9999-12-31"

_BLOCK: Final = 1 << 20
"""Bytes of CSV that are read at once."""


class Converter:
    """Converts rows, and counts the values that Arrow has no equal for, by column."""

    def __init__(self) -> None:
        self.replaced: Counter[str] = Counter()

    def to_arrow(self, columns: pa.Schema, rows: Sequence[Row | None]) -> pa.StructArray:
        """Rows as a struct, a null for each None."""
        mask: pa.Array | None = None
        if None in rows:
            empty: Row = (None,) * len(columns)
            mask = pa.array([row is None for row in rows], pa.bool_())
            rows = [empty if row is None else row for row in rows]
        # To transpose with zip(*rows) would make an object for each row, and the garbage collector
        # look at all others.
        arrays = [
            self._column(field, [row[place] for row in rows])  # type: ignore[index]
            for place, field in enumerate(columns)
        ]
        return pa.StructArray.from_arrays(arrays, fields=_nullable(columns), mask=mask)

    def from_csv(self, columns: pa.Schema, data: bytes) -> pa.StructArray:
        """The rows of COPY's CSV as a struct: the one that `to_arrow` makes of their texts."""
        try:
            kinds = [f.type if _is_read(f.type) else pa.binary() for f in columns]
            arrays = _read_csv(data, kinds, _BLOCK)
        except pa.ArrowInvalid:  # a value that Arrow has no equal for, or a row larger than a block
            texts = [pa.binary()] * len(columns)
            arrays = _read_csv(data, texts, max(_BLOCK, len(data)))
        made = [
            array if array.type.equals(field.type) and not types.is_binary(field.type)
            else self._column(field, array)
            for field, array in zip(columns, arrays, strict=True)
        ]  # fmt: skip
        return pa.StructArray.from_arrays(made, fields=_nullable(columns))

    def to_rows(self, columns: pa.Schema, values: pa.StructArray) -> list[Row | None]:
        """A struct as rows."""
        if not len(columns):
            return [() if valid else None for valid in values.is_valid().to_pylist()]
        written = [_texts(values.field(place)) for place in range(len(columns))]
        rows: list[Row | None] = list(zip(*written, strict=True))
        if values.null_count:
            valid = values.is_valid().to_pylist()
            return [row if there else None for row, there in zip(rows, valid, strict=True)]
        return rows

    def _column(self, field: pa.Field, values: pa.Array | Sequence[bytes | None]) -> pa.Array:
        try:
            return self._array(field, field.type, values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
            said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise SourceError(
                f"A value of column {_named(field)} is not a {field.type}: {said}",
                hint="Report this with the type of the column",
                column=field.name,
            ) from None

    def _array(
        self, field: pa.Field, kind: pa.DataType, values: pa.Array | Sequence[bytes | None]
    ) -> Any:
        if types.is_list(kind):
            return self._lists(field, kind, _listed(values))
        if types.is_binary(kind):
            return _bytes(_listed(values))
        texts = pa.array(values, pa.binary()).cast(pa.string())
        if types.is_string(kind):
            return texts
        if types.is_boolean(kind):
            return pc.equal(texts, "t")
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            return self._replace(field, kind, texts).cast(kind)

    def _replace(self, field: pa.Field, kind: pa.DataType, texts: Any) -> Any:
        """The texts with values that Arrow can have, in place of those that it cannot."""
        if types.is_decimal(kind):
            strange = pc.equal(texts, "NaN")
            self._count(field, strange)
            return pc.if_else(strange, pa.scalar(None, pa.string()), texts)
        if not (types.is_date(kind) or types.is_timestamp(kind)):
            return texts
        early = pc.match_substring_regex(texts, _BEFORE)
        strange = pc.or_(early, pc.invert(pc.match_substring_regex(texts, _FOUR_DIGITS)))
        self._count(field, strange)
        zone = "Z" if types.is_timestamp(kind) and kind.tz else ""
        first = _FIRST if types.is_date(kind) else f"{_FIRST} 00:00:00.000000{zone}"
        last = _LAST if types.is_date(kind) else f"{_LAST} 23:59:59.999999{zone}"
        return pc.if_else(strange, pc.if_else(early, first, last), texts)

    def _count(self, field: pa.Field, strange: Any) -> None:
        self.replaced[_named(field)] += pc.sum(strange).as_py() or 0

    def _lists(self, field: pa.Field, kind: pa.DataType, values: Sequence[bytes | None]) -> Any:
        """Arrays, which are lists of one dimension: rows of a matrix come one after the other."""
        elements: list[bytes | None] = []
        offsets: list[int | None] = []
        for value in values:
            if value is None:
                offsets.append(None)
                continue
            offsets.append(len(elements))
            parsed, depth = parse_array(value)
            if depth > 1:
                self.replaced[_named(field)] += 1
            elements += parsed
        child = self._array(field, kind.value_type, elements)
        return pa.ListArray.from_arrays(pa.array([*offsets, len(elements)], pa.int32()), child)


def csv_rows(data: bytes, width: int) -> list[Row]:
    """The rows of COPY's CSV, each value as its text."""
    columns = _read_csv(data, [pa.binary()] * width, max(_BLOCK, len(data)))
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def last_of_csv(data: bytes, width: int, places: Sequence[int]) -> Row:
    """Some values of the last row of COPY's CSV, as texts."""
    columns = _read_csv(data, [pa.binary()] * width, max(_BLOCK, len(data)), places)
    return tuple(column[-1].as_py() for column in columns)


def _read_csv(
    data: bytes, kinds: Sequence[pa.DataType], block: int, places: Sequence[int] = ()
) -> list[pa.Array]:
    """The columns of COPY's CSV, in which an empty text has quotes and a null has none.

    All of them, or those at some places.
    """
    if not data:
        return [pa.array([], kind) for kind in kinds]
    named = {str(place): kind for place, kind in enumerate(kinds)}
    found = csv.read_csv(
        pa.py_buffer(data),
        csv.ReadOptions(column_names=list(named), block_size=block),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=named,
            include_columns=list(map(str, places)),
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in found.columns]


def _is_read(kind: pa.DataType) -> bool:
    """True if Arrow's reader of CSV makes values of a type as a cast of their texts does."""
    return not (types.is_list(kind) or types.is_binary(kind))


def _listed(values: pa.Array | Sequence[bytes | None]) -> Sequence[bytes | None]:
    found: Sequence[bytes | None] = values.to_pylist() if isinstance(values, pa.Array) else values
    return found


def parse_array(text: bytes) -> tuple[list[bytes | None], int]:
    """The elements of an array as PostgreSQL writes it, and its dimensions."""
    if text.startswith(b"["):  # its lower bounds, if they are not 1
        text = text.partition(b"=")[2]
    inner = text[1:-1]
    if b'"' not in inner and b"{" not in inner:
        if not inner:
            return [], 1
        return [None if part == b"NULL" else part for part in inner.split(b",")], 1
    return _parse_quoted(text)


def _parse_quoted(text: bytes) -> tuple[list[bytes | None], int]:
    elements: list[bytes | None] = []
    depth = deepest = at = 0
    while at < len(text):
        mark = text[at : at + 1]
        if mark == b"{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark == b"}":
            depth -= 1
        elif mark == b'"':
            value = bytearray()
            at += 1
            while text[at] != 0x22:
                if text[at] == 0x5C:
                    at += 1
                value.append(text[at])
                at += 1
            elements.append(bytes(value))
        elif mark != b",":
            start = at
            while text[at] not in b",}":
                at += 1
            part = text[start:at]
            elements.append(None if part == b"NULL" else part)
            continue
        at += 1
    return elements, max(deepest, 1)


def _bytes(values: Sequence[bytes | None]) -> Any:
    """Binary values, which PostgreSQL writes as `\\x` and hexadecimal digits."""
    made = [None if value is None else unhexlify(value[2:]) for value in values]
    return pa.array(made, pa.binary())


def _texts(column: Any) -> list[bytes | None]:
    """Values as PostgreSQL could have written them."""
    kind = column.type
    if types.is_list(kind):
        return [_array_text(kind.value_type, value) for value in column]
    if types.is_binary(kind):
        return [
            None if value is None else b"\\x" + value.hex().encode() for value in column.to_pylist()
        ]
    if types.is_boolean(kind):
        column = pc.if_else(column, "t", "f")
    found: list[bytes | None] = column.cast(pa.string()).cast(pa.binary()).to_pylist()
    return found


def _array_text(kind: pa.DataType, value: Any) -> bytes | None:
    if not value.is_valid:
        return None
    elements = _texts(value.values.cast(kind)) if value.values is not None else []
    return b"{" + b",".join(map(_element, elements)) + b"}"


def _element(value: bytes | None) -> bytes:
    if value is None:
        return b"NULL"
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _nullable(columns: pa.Schema) -> list[pa.Field]:
    return [pa.field(field.name, field.type) for field in columns]


def _named(field: pa.Field) -> str:
    table = (field.metadata or {}).get(TABLE, b"").decode()
    return f"{table}.{field.name}" if table else str(field.name)
