"""SQL dialects: quoted names and values, and comparisons of a column with a value.

Values come as Arrow columns, so that a date that Python cannot hold is text like any other.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from headrace.errors import Unsupported

NULL = "NULL"


class Dialect(ABC):
    """The SQL of one kind of database."""

    title: str
    """The name of the database, for people."""
    run: str
    """The command that runs a script, and stops at its first error."""
    begin: tuple[str, ...]
    """The statements that begin the script's transaction."""
    create_skipped: str
    """The statement that creates the table of skipped changes."""
    drop_skipped: str
    nothing: str = ""
    """The table of a SELECT without one."""

    @abstractmethod
    def name(self, name: str) -> str:
        """A quoted name of a table or column."""

    @abstractmethod
    def literals(self, column: pa.Array) -> list[str]:
        """The values of a column as SQL."""

    @abstractmethod
    def same(self, column: str, literal: str, kind: pa.DataType) -> str:
        """The condition that a column has exactly a value: case, blanks, NULL. Or nothing."""

    @abstractmethod
    def reporting(self, statement: str, report: str) -> str:
        """A statement, and a report if it has changed no row."""

    def table(self, schema: str, name: str) -> str:
        """The quoted name of a table in its schema."""
        return f"{self.name(schema)}.{self.name(name)}" if schema else self.name(name)

    def insert(self, table: str, columns: Iterable[str], values: Iterable[str], where: str) -> str:
        """An INSERT of a row under a condition."""
        names = ", ".join(map(self.name, columns))
        row = ", ".join(values)
        return f"INSERT INTO {table} ({names}) SELECT {row}{self.nothing}\n  WHERE {where}"


class SQLite(Dialect):
    """SQLite, whose values have types of their own, whatever the column's."""

    title = "SQLite"
    run = "sqlite3 -bail FILE < SCRIPT"
    begin = ("BEGIN IMMEDIATE", "PRAGMA defer_foreign_keys = ON")
    create_skipped = "CREATE TEMP TABLE headrace_skipped (number INTEGER, change TEXT)"
    drop_skipped = "DROP TABLE temp.headrace_skipped"

    def name(self, name: str) -> str:
        return _doubled(name, '"')

    def literals(self, column: pa.Array) -> list[str]:
        kind = column.type
        if types.is_boolean(kind):
            return _each(column, lambda value: str(int(value)))
        if types.is_integer(kind):
            return _each(column, str)
        if types.is_floating(kind):
            return _each(column, _sqlite_real)
        if _is_bytes(kind):
            return _each(column, lambda value: f"x'{value.hex()}'")
        return _each(_text(column, self.title), _sqlite_text)

    def same(self, column: str, literal: str, kind: pa.DataType) -> str:
        return f"{self.name(column)} COLLATE BINARY IS {literal}"

    def reporting(self, statement: str, report: str) -> str:
        return f"{statement};\n{report} WHERE changes() = 0"


class PostgreSQL(Dialect):
    """PostgreSQL, which reads a quoted value as the type of its column."""

    title = "PostgreSQL"
    run = "psql -v ON_ERROR_STOP=1 -f SCRIPT DATABASE"
    begin = (
        "BEGIN",
        "SET LOCAL standard_conforming_strings = on",
        "SET LOCAL TimeZone = 'UTC'",
        "SET LOCAL extra_float_digits = 1",
        "SET CONSTRAINTS ALL DEFERRED",
    )
    create_skipped = "CREATE TEMP TABLE headrace_skipped (number bigint, change text)"
    drop_skipped = "DROP TABLE headrace_skipped"

    def name(self, name: str) -> str:
        return _doubled(name, '"')

    def literals(self, column: pa.Array) -> list[str]:
        kind = column.type
        if types.is_boolean(kind):
            return _each(column, lambda value: "'true'" if value else "'false'")
        if _is_bytes(kind):
            return _each(column, lambda value: f"'\\x{value.hex()}'")
        if types.is_floating(kind):
            return _each(_shortest(column), lambda value: f"'{_pg_float(value)}'")
        if types.is_list(kind) or types.is_large_list(kind):
            return _each(column, lambda value: _doubled(_pg_array(value), "'"))
        return _each(_text(column, self.title), lambda value: _doubled(value, "'"))

    def same(self, column: str, literal: str, kind: pa.DataType) -> str:
        name = self.name(column)
        if literal == NULL:
            return f"{name} IS NULL"
        if types.is_string(kind):
            # The text of any type: json has no equality, and char(n) would lose its blanks.
            return f"format('%s', {name}) = {literal} AND {name} IS NOT NULL"
        return f"{name} IS NOT DISTINCT FROM {literal}"

    def insert(self, table: str, columns: Iterable[str], values: Iterable[str], where: str) -> str:
        text = super().insert(table, columns, values, where)
        # For identity columns that are GENERATED ALWAYS; others do not mind.
        return text.replace(") SELECT ", ") OVERRIDING SYSTEM VALUE SELECT ", 1)

    def reporting(self, statement: str, report: str) -> str:
        done = f"WITH done AS ({statement}\n  RETURNING 1)"
        return f"{done}\n{report} WHERE NOT EXISTS (SELECT FROM done)"


class MySQL(Dialect):
    """MySQL and MariaDB."""

    title = "MySQL and MariaDB"
    run = "mariadb --default-character-set=utf8mb4 DATABASE < SCRIPT"
    begin = (
        "SET NAMES utf8mb4",
        "SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',NO_BACKSLASH_ESCAPES')",
        "SET SESSION time_zone = '+00:00'",
        "START TRANSACTION",
    )
    create_skipped = (
        "CREATE TEMPORARY TABLE headrace_skipped "
        "(number BIGINT, `change` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)"
    )
    drop_skipped = "DROP TEMPORARY TABLE headrace_skipped"
    nothing = " FROM DUAL"

    def name(self, name: str) -> str:
        return _doubled(name, "`")

    def literals(self, column: pa.Array) -> list[str]:
        kind = column.type
        if types.is_boolean(kind):
            return _each(column, lambda value: str(int(value)))
        if types.is_integer(kind) or types.is_decimal(kind):
            return _each(column, str)
        if types.is_floating(kind):
            return _each(_shortest(column), _mysql_float)
        if _is_bytes(kind):
            return _each(column, lambda value: f"x'{value.hex()}'")
        texts = _text(column, self.title)
        return _each(
            texts, lambda value: _mysql_text(value.removesuffix("Z") if _timed(kind) else value)
        )

    def same(self, column: str, literal: str, kind: pa.DataType) -> str:
        name = self.name(column)
        if types.is_float32(kind) and literal != NULL:
            return ""  # compared as a double, which it is not equal to
        if types.is_string(kind) and literal != NULL:
            # By bytes: most collations ignore case and trailing blanks.
            return f"CAST(CONVERT({name} USING utf8mb4) AS BINARY) <=> CAST({literal} AS BINARY)"
        return f"{name} <=> {literal}"

    def reporting(self, statement: str, report: str) -> str:
        return f"{statement};\n{report} FROM DUAL WHERE ROW_COUNT() = 0"


DIALECTS: dict[str, Dialect] = {
    "sqlite": SQLite(),
    "postgresql": PostgreSQL(),
    "mysql": MySQL(),
    "mariadb": MySQL(),
}
"""Dialects by the connector in the envelope."""


def _doubled(text: str, quote: str) -> str:
    """A text between quotes, with each quote in it doubled."""
    return quote + text.replace(quote, quote * 2) + quote


def _each(column: pa.Array, literal: Callable[[Any], str]) -> list[str]:
    return [NULL if value is None else literal(value) for value in column.to_pylist()]


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


def _timed(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind))


def _text(column: pa.Array, title: str) -> pa.Array:
    """A column as text: Arrow's own of numbers, decimals, dates and times."""
    kind = column.type
    if types.is_nested(kind):
        raise Unsupported(
            f"A value of type {kind} cannot be written as SQL for {title}",
            hint="Leave out its table: --tables with the names of the others",
            capability="LITERALS",
        )
    return column if types.is_string(kind) else pc.cast(column, pa.string())


def _shortest(column: pa.Array) -> pa.Array:
    """Floats such that `repr` is the shortest text of their own precision."""
    if types.is_float64(column.type):
        return column
    texts = pc.cast(column, pa.string()).to_pylist()
    return pa.array([None if text is None else float(text) for text in texts], pa.float64())


def _sqlite_real(value: float) -> str:
    if math.isinf(value):
        return "9e999" if value > 0 else "-9e999"
    return NULL if math.isnan(value) else repr(value)


def _sqlite_text(value: str) -> str:
    """A text; NUL would end it, so it is put together around each."""
    return "||char(0)||".join(_doubled(part, "'") for part in value.split("\0"))


def _mysql_float(value: float) -> str:
    return repr(value)


_CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f]")


def _mysql_text(value: str) -> str:
    """A text, in hexadecimal if the client could misread a character of it."""
    if _CONTROL.search(value):
        return f"_utf8mb4 x'{value.encode().hex()}'"
    return _doubled(value, "'")


def _pg_float(value: float) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "NaN" if math.isnan(value) else repr(value)


def _pg_array(value: Any) -> str:
    """An array as PostgreSQL writes it, each element between double quotes."""
    if value is None:
        return NULL
    if isinstance(value, list):
        return "{" + ",".join(map(_pg_array, value)) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _pg_float(value)
    text = f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def described(table: str, key: str) -> str:
    """A changed row, for a comment: in ASCII and on one line, whatever its names and key hold."""
    try:
        shown = json.dumps(json.loads(key))
    except ValueError:
        shown = json.dumps(key)
    return f"{json.dumps(table)[1:-1]} {shown}"
