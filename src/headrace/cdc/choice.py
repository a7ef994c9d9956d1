"""The choice of tables to capture: exact names, or regular expressions as Debezium takes them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import InvalidSetting


@dataclass(frozen=True)
class TableChoice:
    """The tables of a database that are captured. Without anything, all of them.

    `names` are tables, with or without their schema. The others are regular expressions that match
    the whole name, in any case: those of tables are SCHEMA.TABLE.
    """

    names: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    no_schemas: tuple[str, ...] = ()

    def of(self, tables: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The chosen ones of the tables there are, each a schema and a name, in their order.

        Raises if a name or an expression to include chooses nothing.
        """
        chosen = [table for table in tables if self.takes(*table)]
        for name in self.names:
            if not any(_is_named(table, name) for table in tables):
                raise _unknown(name, tables)
        for pattern in self.include:
            if not any(_matches(pattern, ".".join(table)) for table in tables):
                raise _unknown(pattern, tables)
        if not chosen:
            raise InvalidSetting("No table is left to capture", hint="Check what is excluded")
        return chosen

    def takes(self, schema: str, name: str) -> bool:
        """True if a table is chosen."""
        full = f"{schema}.{name}"
        if self.names and not any(_is_named((schema, name), given) for given in self.names):
            return False
        if self.schemas and not any(_matches(pattern, schema) for pattern in self.schemas):
            return False
        if any(_matches(pattern, schema) for pattern in self.no_schemas):
            return False
        if self.include and not any(_matches(pattern, full) for pattern in self.include):
            return False
        return not any(_matches(pattern, full) for pattern in self.exclude)


def _is_named(table: tuple[str, str], name: str) -> bool:
    return name in (table[1], ".".join(table))


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name, re.IGNORECASE) is not None


def _unknown(name: str, tables: Sequence[tuple[str, str]]) -> InvalidSetting:
    """The error for a table that is not there, with the nearest one."""
    known = {
        **{table[1]: table[1] for table in tables},
        **{".".join(t): ".".join(t) for t in tables},
    }
    near = difflib.get_close_matches(name, known, 1, 0.5)
    listed = ", ".join(sorted(".".join(table) for table in tables)[:10])
    return InvalidSetting(
        f"There is no table {name!r} in the database",
        hint=f"Did you mean {near[0]!r}?" if near else f"There are: {listed or 'none'}",
        table=name,
    )
