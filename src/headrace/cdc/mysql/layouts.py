"""The layout of a table's rows, from the description that the binlog has before each change.

It is the table as it was at that place of the binlog, which a later ALTER TABLE does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.event import BinLogEvent

from headrace.cdc.contract import Table
from headrace.cdc.mysql import images
from headrace.cdc.mysql.columns import DeclaredColumn, bit_type, decimal_type
from headrace.cdc.mysql.images import Decoder
from headrace.errors import SourceError

_BYTES: Final = "binary"

_CODECS: Final = {
    **dict.fromkeys(("utf8", "utf8mb3", "utf8mb4"), "utf-8"),
    "ascii": "ascii",
    images.LATIN1: images.LATIN1,
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "euckr": "euc_kr",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "big5": "big5",
    "tis620": "tis-620",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
}
"""Python's names of the server's character sets."""

_INTEGERS: Final = {
    FIELD_TYPE.TINY: (pa.int8(), "b", pa.int16(), "B"),
    FIELD_TYPE.SHORT: (pa.int16(), "h", pa.int32(), "H"),
    FIELD_TYPE.LONG: (pa.int32(), "i", pa.int64(), "I"),
    FIELD_TYPE.LONGLONG: (pa.int64(), "q", pa.decimal128(20, 0), "Q"),
}

_SIMPLE: Final[dict[int, tuple[pa.DataType, Decoder]]] = {
    FIELD_TYPE.FLOAT: (pa.float32(), images.number("f")),
    FIELD_TYPE.DOUBLE: (pa.float64(), images.number("d")),
    FIELD_TYPE.YEAR: (pa.int16(), images.year),
    FIELD_TYPE.DATE: (pa.date32(), images.day),
}

_SIZED: Final[dict[int, Callable[[Any], tuple[pa.DataType, Decoder]]]] = {
    FIELD_TYPE.NEWDECIMAL: lambda column: (
        decimal_type(column.precision, column.decimals),
        images.decimal(column.precision, column.decimals),
    ),
    FIELD_TYPE.BIT: lambda column: (bit_type(column.bits), images.bits(column.bits)),
    FIELD_TYPE.TIME2: lambda column: (pa.string(), images.duration(column.fsp)),
    FIELD_TYPE.DATETIME2: lambda column: (pa.timestamp("us"), images.moment(column.fsp)),
    FIELD_TYPE.TIMESTAMP2: lambda column: (
        pa.timestamp("us", tz="UTC"),
        images.instant(column.fsp),
    ),
    FIELD_TYPE.GEOMETRY: lambda column: (pa.binary(), images.raw(column.length_size)),
}


@dataclass(frozen=True)
class Layout:
    """A captured table, and how to read each of its columns."""

    table: Table
    decoders: tuple[Decoder, ...]


class LayoutReader:
    """Reads layouts, with what the binlog leaves out: character sets, and labels in them."""

    def __init__(self, charsets: Mapping[int, str]) -> None:
        self._charsets = charsets

    def read(self, event: BinLogEvent, declared: Mapping[str, DeclaredColumn]) -> Layout:
        """The layout in a description of a captured table.

        `declared` has its columns as they are now, for those types that the binlog does not tell
        from plain bytes, and labels that are not in UTF-8.
        """
        name = f"{event.schema}.{event.table}"
        extra = event.optional_metadata
        if not extra.column_name_list:
            raise SourceError(
                f"the binlog has no names of the columns of {name}",
                hint="Set binlog_row_metadata=FULL on the server, and take a new snapshot",
            )
        texts = iter(extra.charset_collation_list or ())
        choices = iter(extra.enum_and_set_collation_list or ())
        fields, decoders = [], []
        for column in event.columns:
            kind = column.type
            collation = None
            if event._is_character_column(kind, dbms=event.dbms):
                collation = next(texts, None)
            elif kind in (FIELD_TYPE.ENUM, FIELD_TYPE.SET):
                collation = next(choices, None)
            type_, decoder = self._column(name, column, collation, declared.get(column.name))
            fields.append(pa.field(column.name, type_))
            decoders.append(decoder)
        places = extra.simple_primary_key_list or list(extra.primary_keys_with_prefix)
        if not places:
            raise SourceError(
                f"{name} has lost its primary key, so its rows cannot be told apart",
                hint="Give it one, or leave the table out",
            )
        key = tuple(fields[place].name for place in places)
        table = Table(event.schema, event.table, pa.schema(fields), key)
        return Layout(table, tuple(decoders))

    def _column(
        self, table: str, column: Any, collation: int | None, declared: DeclaredColumn | None
    ) -> tuple[pa.DataType, Decoder]:
        kind = column.type
        if kind in _INTEGERS:
            signed, form, unsigned, unsigned_form = _INTEGERS[kind]
            if column.unsigned:
                large = pa.types.is_decimal(unsigned)
                return unsigned, images.number(unsigned_form, text=large)
            return signed, images.number(form)
        if kind == FIELD_TYPE.INT24:
            return pa.int32(), images.medium(signed=not column.unsigned)
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if kind in _SIZED:
            return _SIZED[kind](column)
        if kind in (FIELD_TYPE.ENUM, FIELD_TYPE.SET):
            labels = self._labels(table, column, collation, declared)
            read = images.label if kind == FIELD_TYPE.ENUM else images.labels
            return pa.string(), read(column.size, labels)
        if kind in (FIELD_TYPE.BLOB, FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING):
            return self._text(table, column, collation, declared)
        raise images.refused(table, column.name, kind)

    def _text(
        self, table: str, column: Any, collation: int | None, declared: DeclaredColumn | None
    ) -> tuple[pa.DataType, Decoder]:
        if column.type == FIELD_TYPE.BLOB:
            prefix = column.length_size
        else:
            prefix = 2 if column.max_length > 255 else 1
        codec = self._codec(table, column.name, collation)
        if codec != _BYTES:
            return pa.string(), images.text(prefix, codec)
        if column.type == FIELD_TYPE.STRING:
            if declared is not None and declared.kind == "uuid" and column.max_length == 16:
                return pa.string(), images.identifier
            if declared is not None and declared.kind in ("inet4", "inet6"):
                return pa.string(), images.host(column.max_length)
            return pa.binary(), images.raw(prefix, padded=column.max_length)
        return pa.binary(), images.raw(prefix)

    def _labels(
        self, table: str, column: Any, collation: int | None, declared: DeclaredColumn | None
    ) -> tuple[str, ...]:
        """The labels of an ENUM or a SET.

        The package takes them for UTF-8, and makes those empty that are not.
        """
        if column.type == FIELD_TYPE.ENUM:
            found = tuple(column.enum_values[1:])
        else:
            found = tuple(column.set_values)
        plain = all(one and one.isascii() for one in found)
        if plain or self._codec(table, column.name, collation) == "utf-8":
            return found
        if declared is None or len(declared.labels) != len(found):
            raise SourceError(
                f"the labels of the column {column.name!r} of {table} were changed later, and are "
                "not in UTF-8",
                hint="Take a new snapshot of the table",
            )
        return declared.labels

    def _codec(self, table: str, column: str, collation: int | None) -> str:
        charset = _BYTES if collation is None else self._charsets.get(collation, str(collation))
        codec = _BYTES if charset == _BYTES else _CODECS.get(charset)
        if codec is None:
            raise SourceError(
                f"the column {column!r} of {table} has the character set {charset}, which cannot "
                "be read from the binlog",
                hint="Convert the column to utf8mb4, or leave the table out",
            )
        return codec
