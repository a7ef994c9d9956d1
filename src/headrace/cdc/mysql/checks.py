"""Checks of a server and its tables: what capturing needs, each named with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.cdc.contract import Table
from headrace.cdc.mysql.columns import DeclaredColumn, declared_column
from headrace.errors import UserError

_SETTINGS: Final = {
    "log_bin": (("1", "ON"), "log_bin"),
    "binlog_format": (("ROW",), "binlog_format=ROW"),
    "binlog_row_image": (("FULL",), "binlog_row_image=FULL"),
    "binlog_row_metadata": (("FULL",), "binlog_row_metadata=FULL"),
    "log_bin_compress": (("0", "OFF"), "log_bin_compress=OFF"),
}
"""Settings of the server: what they have to be, and how to write it into its configuration."""

_NO_TABLES: Final = {"VIEW", "SYSTEM VIEW", "SEQUENCE", "TEMPORARY", "TEMPORARY SEQUENCE"}
_TRANSACTIONAL: Final = "INNODB"

_COLUMNS: Final = """
    SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, NUMERIC_PRECISION,
           NUMERIC_SCALE
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA IN %s
    ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"""
_KEYS: Final = """
    SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA IN %s AND INDEX_NAME = 'PRIMARY'
    ORDER BY TABLE_SCHEMA, TABLE_NAME, SEQ_IN_INDEX"""
_TABLES: Final = """
    SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES
    WHERE TABLE_SCHEMA IN %s ORDER BY TABLE_SCHEMA, TABLE_NAME"""
_CASCADES: Final = """
    SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, UPDATE_RULE, DELETE_RULE
    FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA IN %s
      AND (UPDATE_RULE NOT IN ('RESTRICT', 'NO ACTION')
           OR DELETE_RULE NOT IN ('RESTRICT', 'NO ACTION'))"""


@dataclass(frozen=True)
class DeclaredTable:
    """A table as `information_schema` has it. `trouble` says why it cannot be captured."""

    table: Table
    columns: Mapping[str, DeclaredColumn]
    trouble: UserError | None


def check_settings(cursor: Any) -> None:
    """Raise for the first setting of the server that is not as capturing needs it."""
    cursor.execute("SELECT @@version")
    version = str(cursor.fetchone()[0])
    if "MariaDB" not in version:
        raise UserError(
            f"the server is {version}, and only the binlog of MariaDB can be read",
            hint="Capture it with Debezium's engine: see docs/how-to/capture-with-debezium.md",
        )
    cursor.execute("SHOW GLOBAL VARIABLES WHERE Variable_name IN %s", (tuple(_SETTINGS),))
    found = dict(cursor.fetchall())
    for name, (wanted, line) in _SETTINGS.items():
        value = found.get(name)
        if value is None and name == "log_bin_compress":
            continue
        if str(value).upper() not in wanted:
            raise UserError(
                f"the server has {name}={value}",
                hint=f"Add `{line}` to the section [mariadbd] of its configuration and restart it",
                setting=name,
            )


def declared_tables(
    cursor: Any, schemas: Sequence[str], takes: Callable[[str, str], bool]
) -> dict[tuple[str, str], DeclaredTable]:
    """The tables of some schemas that are taken, by schema and name."""
    cursor.execute(_COLUMNS, (schemas,))
    names = ("COLUMN_NAME", "DATA_TYPE", "COLUMN_TYPE", "NUMERIC_PRECISION", "NUMERIC_SCALE")
    described: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for schema, table, *values in cursor.fetchall():
        described.setdefault((schema, table), []).append(dict(zip(names, values, strict=True)))
    keys: dict[tuple[str, str], list[str]] = {}
    cursor.execute(_KEYS, (schemas,))
    for schema, table, column in cursor.fetchall():
        keys.setdefault((schema, table), []).append(column)
    cursor.execute(_CASCADES, (schemas,))
    cascades = {(row[0], row[1]): row[2:] for row in cursor.fetchall()}
    cursor.execute(_TABLES, (schemas,))
    found = {}
    for schema, name, kind, engine in cursor.fetchall():
        if kind in _NO_TABLES or not takes(schema, name):
            continue
        place = (schema, name)
        full = f"{schema}.{name}"
        trouble = _trouble(full, kind, engine, keys.get(place), cascades.get(place))
        columns = {}
        try:
            columns = {one["COLUMN_NAME"]: declared_column(full, one) for one in described[place]}
        except UserError as error:
            trouble = trouble or error
        schema_of_rows = pa.schema([(name, column.type) for name, column in columns.items()])
        table = Table(schema, name, schema_of_rows, tuple(keys.get(place, ())))
        found[place] = DeclaredTable(table, columns, trouble)
    return found


def _trouble(
    table: str, kind: str, engine: str | None, key: list[str] | None, cascade: Any
) -> UserError | None:
    if kind == "SYSTEM VERSIONED":
        return UserError(
            f"{table} keeps its own history (WITH SYSTEM VERSIONING), whose rows are not changes",
            hint="Leave the table out",
        )
    if engine is None or engine.upper() != _TRANSACTIONAL:
        return UserError(
            f"{table} has the storage engine {engine}, which has no transactions to read it in",
            hint=f"Run ALTER TABLE {table} ENGINE=InnoDB, or leave the table out",
        )
    if key is None:
        return UserError(
            f"{table} has no primary key, so its rows cannot be told apart",
            hint=f"Run ALTER TABLE {table} ADD PRIMARY KEY (...), or leave the table out",
        )
    if cascade is not None:
        name, on_update, on_delete = cascade
        return UserError(
            f"the foreign key {name} of {table} has ON UPDATE {on_update} ON DELETE {on_delete}, "
            "and the binlog does not have the rows that the server changes for it",
            hint="Make it RESTRICT and change those rows in the application or a trigger, or "
            "leave the table out",
        )
    return None
