"""Conversion of Spark's DDL schema strings to Arrow schemas and back, without Spark.

    url string, user string not null, at timestamp, place struct<lat: double, lon: double>

The grammar is Spark SQL's. Each Spark type has exactly one Arrow type, so two schemas with the same
meaning are equal, and `parse_schema` is the inverse of `format_schema`. DDL cannot express, so it
loses, metadata and whether an array's elements or a map's values may be null.
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple, NoReturn

import pyarrow as pa
from pyarrow import types

from headrace.errors import InvalidSchema

# Spark's own name of each type comes first, then its aliases.
_SPELLINGS: dict[pa.DataType, tuple[str, ...]] = {
    pa.bool_(): ("boolean",),
    pa.int8(): ("tinyint", "byte"),
    pa.int16(): ("smallint", "short"),
    pa.int32(): ("int", "integer"),
    pa.int64(): ("bigint", "long"),
    pa.float32(): ("float", "real"),
    pa.float64(): ("double",),
    pa.string(): ("string",),
    pa.binary(): ("binary",),
    pa.date32(): ("date",),
    pa.timestamp("us", tz="UTC"): ("timestamp", "timestamp_ltz"),
    pa.timestamp("us"): ("timestamp_ntz",),
}
_SIMPLE = {name: kind for kind, names in _SPELLINGS.items() for name in names}
_DECIMAL = ("decimal", "dec", "numeric")
_TEXT = ("varchar", "char", "character")
_KNOWN = (*_SIMPLE, *_DECIMAL, *_TEXT, "array", "map", "struct")

# Arrow types with another layout or a smaller range than their replacement.
_STAND_INS: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}

_MAX_PRECISION = 38  # of a decimal, in Spark and in Arrow
_MAX_DEPTH = 31  # Arrow can read 63 levels, and a map takes two

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<quoted>`(?:[^`]|``)+`)
      | (?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
      | (?P<size>\(\s*[0-9]{1,9}\s*(?:,\s*[0-9]{1,9}\s*)?\))
      | (?P<word>\w+)
      | (?P<mark>[<>,:])
      | (?P<end>\Z)
      | (?P<stray>.)
    )""",
    re.VERBOSE | re.DOTALL,
)


def parse_schema(text: str) -> pa.Schema:
    """The Arrow schema that a DDL string describes. Comments on columns are read and dropped."""
    schema = pa.schema(_Parser(text).fields(end="", depth=0))
    _check_columns(schema.names)
    return schema


def parse_type(text: str) -> pa.DataType:
    """The Arrow type that one DDL type describes, as in `array<string>`."""
    parser = _Parser(text)
    kind = parser.type(depth=0)
    parser.expect("", "the end")
    return kind


def format_schema(schema: pa.Schema) -> str:
    """The DDL string of an Arrow schema, in Spark's own type names.

    Reserved names are allowed here, since Spark needs the log's own columns too.
    """
    _check_unique(schema.names, "of the schema")
    fields = (_normal_field(field, field.name) for field in schema)
    return ", ".join(_format_field(field, " ") for field in fields)


def format_type(kind: pa.DataType) -> str:
    """The DDL of a column's type, in Spark's notation."""
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_list(kind):
        return f"array<{format_type(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{format_type(kind.key_type)}, {format_type(kind.item_type)}>"
    if types.is_struct(kind):
        return f"struct<{', '.join(_format_field(field, ': ') for field in kind)}>"
    return _SPELLINGS[kind][0]


def check_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns, each with the one Arrow type of its Spark type.

    Timestamps become microseconds, in UTC if they have a zone: casting nanoseconds to the
    returned schema loses the last three digits.
    """
    _check_columns(schema.names)
    return parse_schema(format_schema(schema))


class _Token(NamedTuple):
    kind: str
    text: str
    at: int  # counted from 1, as in an editor


class _Parser:
    """A recursive-descent parser of one DDL string, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._tokens = []
        for match in _TOKEN.finditer(text):
            kind = str(match.lastgroup)
            self._tokens.append(_Token(kind, match[kind], match.start(kind) + 1))
        self._next = 0

    def fields(self, end: str, depth: int) -> list[pa.Field]:
        """Fields up to and including the mark `end`."""
        fields = [self._field(depth)]
        while self._accept(","):
            fields.append(self._field(depth))
        self.expect(end, f"',' or {end!r}" if end else "',' or the end")
        return fields

    def type(self, depth: int) -> pa.DataType:
        token = self._take("a type", "word")
        if depth > _MAX_DEPTH:
            _fail(f"at most {_MAX_DEPTH} types inside each other", token)
        name = token.text.lower()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in _DECIMAL:
            return self._decimal()
        if name in _TEXT:
            self._size(1, "a length, as in (20)")
            return pa.string()
        if name not in ("array", "map", "struct"):
            _unknown_type(token)
        self.expect("<")
        if name == "struct":
            struct = pa.struct(self.fields(end=">", depth=depth + 1))
            _check_unique(struct.names, f"of the struct at character {token.at}")
            return struct
        inner = self.type(depth + 1)
        if name == "array":
            kind = pa.list_(inner)
        else:
            self.expect(",")
            kind = pa.map_(inner, self.type(depth + 1))
        self.expect(">")
        return kind

    def expect(self, mark: str, expected: str = "") -> None:
        if not self._accept(mark):
            _fail(expected or repr(mark), self._peek())

    def _field(self, depth: int) -> pa.Field:
        token = self._take("a column name", "word", "quoted")
        name = token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text
        self._accept(":")
        kind = self.type(depth)
        nullable = not self._accept("not")
        if not nullable:
            self.expect("null")
        if self._accept("comment"):
            self._take("a quoted comment", "text")
        return pa.field(name, kind, nullable=nullable)

    def _size(self, at_most: int, expected: str) -> list[int]:
        token = self._take(expected, "size")
        numbers = token.text.strip("()").split(",")
        if len(numbers) > at_most:
            _fail(expected, token)
        return [int(number) for number in numbers]

    def _decimal(self) -> pa.DataType:
        token = self._peek()
        if token.kind not in ("size", "stray"):
            return pa.decimal128(10, 0)
        precision, scale = (*self._size(2, "a precision and a scale, as in (12,2)"), 0)[:2]
        if not scale <= precision <= _MAX_PRECISION or not precision:
            _fail(f"a precision of 1 to {_MAX_PRECISION} and a scale no larger", token)
        return pa.decimal128(precision, scale)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, expected: str, *kinds: str) -> _Token:
        token = self._peek()
        if token.kind not in kinds:
            _fail(expected, token)
        self._next += 1
        return token

    def _accept(self, mark: str) -> bool:
        """True if the next token is this mark or word, which is then consumed."""
        token = self._peek()
        found = token.kind in ("word", "mark", "end") and token.text.lower() == mark
        self._next += found
        return found


def _fail(expected: str, token: _Token) -> NoReturn:
    found = repr(token.text) if token.text else "the end"
    raise InvalidSchema(
        f"expected {expected} at character {token.at} of the schema, found {found}",
        hint="A schema looks like: url string, user string not null, at timestamp",
        position=token.at,
    )


def _unknown_type(token: _Token) -> NoReturn:
    close = difflib.get_close_matches(token.text.lower(), _KNOWN, n=1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    raise InvalidSchema(
        f"unknown type {token.text!r} at character {token.at} of the schema",
        hint=f"{meant}Known types: {', '.join(_KNOWN)}",
        position=token.at,
    )


def _check_columns(names: list[str]) -> None:
    if not names:
        raise InvalidSchema("the schema has no columns", hint="Declare at least one")
    _check_unique(names, "of the schema")
    for name in names:
        if name.startswith("_"):
            raise InvalidSchema(
                f"column name {name!r} is reserved",
                hint="Names that start with an underscore are reserved for the log; choose another",
                column=name,
            )


def _check_unique(names: list[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise InvalidSchema(f"a column {where} has no name", hint="Give it one")
        # Spark ignores the case of column names, so these two would be ambiguous.
        if name.lower() in seen:
            raise InvalidSchema(
                f"columns {seen[name.lower()]!r} and {name!r} {where} have the same name",
                hint="Names are case-insensitive; rename one",
                column=name,
            )
        seen[name.lower()] = name


def _normal_field(field: pa.Field, path: str) -> pa.Field:
    return pa.field(field.name, _normal_type(field.type, path), nullable=field.nullable)


def _normal_type(kind: pa.DataType, path: str) -> pa.DataType:
    kind = _STAND_INS.get(kind, kind)
    if kind in _SPELLINGS:
        return kind
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= _MAX_PRECISION:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _normal_type(kind.value_type, path)
    if types.is_nested(kind) and hasattr(kind, "value_type"):  # each of Arrow's five lists
        return pa.list_(_normal_type(kind.value_type, f"{path}.element"))
    if types.is_map(kind):
        key = _normal_type(kind.key_type, f"{path}.key")
        return pa.map_(key, _normal_type(kind.item_type, f"{path}.value"))
    if types.is_struct(kind) and kind.num_fields:
        _check_unique(kind.names, f"of {path!r}")
        return pa.struct([_normal_field(field, f"{path}.{field.name}") for field in kind])
    raise InvalidSchema(
        f"column {path!r} has the type {kind}, which Spark cannot hold",
        hint=f"Cast it to one of: {', '.join(_KNOWN)}",
        column=path,
    )


def _format_field(field: pa.Field, separator: str) -> str:
    plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", field.name)
    name = field.name if plain else "`" + field.name.replace("`", "``") + "`"
    return f"{name}{separator}{format_type(field.type)}{'' if field.nullable else ' not null'}"
