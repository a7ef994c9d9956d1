"""The tables of a database, from its catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.cdc.contract import Table
from headrace.cdc.postgres.failures import quoted
from headrace.cdc.postgres.types import Types
from headrace.errors import UserError

Query = Callable[..., list[tuple[Any, ...]]]

_TABLES = """
    SELECT c.oid::int8, n.nspname, c.relname, c.relpersistence, c.relreplident,
           has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
           pg_get_userbyid(c.relowner), i.indimmediate, i.indisreplident,
           ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place)
                 JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number ORDER BY k.place)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND n.nspname NOT LIKE 'pg\\_%%' AND n.nspname <> 'information_schema'
    ORDER BY n.nspname, c.relname
"""
"""Tables, and partitioned ones as a whole. Their partitions are not captured one by one."""

_COLUMNS = """
    SELECT attrelid::int8, attname, atttypid::int8, atttypmod FROM pg_attribute
    WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    ORDER BY attrelid, attnum
"""
"""Columns without the generated ones, which the server does not send."""


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalog, and what stands in the way of capturing it."""

    number: int
    schema: str
    name: str
    persistence: str
    identity: str
    readable: bool
    owner: str
    immediate: bool | None
    identifies: bool | None
    key: Sequence[str]

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def check(self, user: str) -> None:
        """Raise if the table cannot be captured, with what to do."""
        name = self.full_name
        if self.persistence != "p":
            raise UserError(
                f"Table {name} is unlogged or temporary, so its changes are in no log",
                hint=f"ALTER TABLE {self.quoted} SET LOGGED",
                table=name,
            )
        if not self.key:
            raise UserError(
                f"Table {name} has no primary key, so its rows cannot be told apart",
                hint=f"ALTER TABLE {self.quoted} ADD PRIMARY KEY (...)",
                table=name,
            )
        usable = self.immediate if self.identity == "d" else self.identifies
        if self.identity != "f" and not usable:
            raise UserError(
                f"Table {name} does not write its primary key to the log when a row changes",
                hint=f"ALTER TABLE {self.quoted} REPLICA IDENTITY "
                + ("DEFAULT" if self.immediate else "FULL, since the key is DEFERRABLE"),
                table=name,
            )
        if not self.readable:
            raise UserError(
                f"The role {user} may not read table {name}",
                hint=f"GRANT USAGE ON SCHEMA {quoted(self.schema)} TO {quoted(user)}; "
                f"GRANT SELECT ON {self.quoted} TO {quoted(user)}",
                table=name,
            )


def all_tables(query: Query) -> list[CatalogTable]:
    """The tables of the database that are not the server's own."""
    return [CatalogTable(*row) for row in query(_TABLES)]


def described(query: Query, types: Types, tables: Sequence[CatalogTable]) -> list[Table]:
    """The tables with their columns."""
    columns: dict[int, list[tuple[str, int, int]]] = {table.number: [] for table in tables}
    for number, *column in query(_COLUMNS, [table.number for table in tables]):
        columns[number].append((column[0], column[1], column[2]))
    return [
        Table(
            table.schema,
            table.name,
            pa.schema(types.fields(table.full_name, columns[table.number])),
            tuple(table.key),
        )
        for table in tables
    ]
