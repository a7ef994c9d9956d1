"""Declaration of a table-table join.

The first table drives the join. Rows of the others are found by equal columns: by their key, or, if
there are only two tables, by any columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headrace.errors import InvalidPipeline
from headrace.pipeline.arguments import declaration
from headrace.pipeline.expressions import not_there
from headrace.pipeline.joins import On, check_apart, equal_columns
from headrace.pipeline.row_steps import check_new_names
from headrace.pipeline.stream import Stream, Text
from headrace.pipeline.tables import Table
from headrace.pipeline.where import Where, caller

TableHow = Literal["inner", "left", "right", "full"]

_TAKEN = "revision"
"""A column of the changelog."""


@dataclass(frozen=True)
class Link:
    """A joined table, with pairs of a column so far and the table column that equals it."""

    table: Table
    on: tuple[tuple[str, str], ...]
    prefix: str

    @property
    def by_key(self) -> bool:
        """True if rows are found by the table's key, so at most one matches."""
        return {theirs for _, theirs in self.on} == set(self.table.key)

    @property
    def from_table(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a table column and its name in the result."""
        equal = {theirs for _, theirs in self.on}
        return tuple((n, self.prefix + n) for n in self.table.columns if n not in equal)


@dataclass(frozen=True)
class TableJoin(Stream):
    """The current rows of joined tables."""

    first: Table
    links: tuple[Link, ...]
    how: TableHow
    noun = "joined tables"
    is_result = True
    has_checkpoint = False
    changes_rows = True
    follows_slowest = False
    view_key_is = "key of the tables"
    unreadable = (
        "its rows are updated and deleted, and a step takes in each row once",
        "app.view(...) keeps them, and the topic of its changes has every change",
    )

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return self.tables

    @property
    def view_key(self) -> tuple[str, ...]:
        return self.key

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.first, *(link.table for link in self.links)

    @property
    def keeps_first(self) -> bool:
        """True if unmatched rows of the first table are shown."""
        return self.how in ("left", "full")

    @property
    def keeps_other(self) -> bool:
        return self.how in ("right", "full")

    @property
    def looks_up(self) -> bool:
        """True if each result row is a row of the first table, at most once."""
        return not self.keeps_other and all(link.by_key for link in self.links)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row. An unmatched row has nulls for the other table."""
        if self.looks_up:
            return self.first.key
        (link,) = self.links
        named = {theirs: mine for mine, theirs in link.on} | dict(link.from_table)
        return tuple(dict.fromkeys((*self.first.key, *(named[name] for name in link.table.key))))

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """The table number (0 for the first) and the original name of each column."""
        found = {name: (0, name) for name in self.first.columns}
        for number, link in enumerate(self.links, 1):
            found |= {name: (number, column) for column, name in link.from_table}
        return found

    def looked_up_from(self, link: Link) -> int:
        """The number of the table whose columns find the rows of a link."""
        return self.origins[link.on[0][0]][0]

    def definition(self, text: Text) -> dict[str, Any]:
        return {
            "join": [self.how],
            "on": [[list(pair) for pair in link.on] for link in self.links],
            "prefix": [link.prefix for link in self.links],
            "merge": [table.definition(text) for table in self.tables],
        }


@declaration
def join_tables(
    first: Table,
    *others: Table,
    on: On | Sequence[On],
    how: TableHow = "inner",
    prefix: str | Sequence[str] = "",
) -> TableJoin:
    """A live view of joined tables, which changes whenever one of its tables does.

    `on={"product": "id"}` finds the row of the second table whose `id` is the `product` of the
    first. `how` selects the unmatched rows that are shown: none, those of the first table (`left`),
    of the second (`right`), or of both (`full`). A null equals nothing.

    The columns are those of the first table, then those of the second without the join columns,
    with `prefix` in front. With more tables, `on` and `prefix` have an entry for each, and each is
    found by its key, from columns of one earlier table.
    """
    where = caller()
    if not others:
        raise InvalidPipeline(
            "A join needs two tables", hint=f"join_tables(orders, products, on=...). See {where}"
        )
    prefixes = [prefix] if isinstance(prefix, str) and len(others) == 1 else prefix
    wanted: Any = [on] if len(others) == 1 else on
    for name, value in (("on", wanted), ("prefix", prefixes)):
        if isinstance(value, str | Mapping) or len(value) != len(others):
            raise InvalidPipeline(
                f"{len(others)} tables are joined to the first, so `{name}` needs as many entries",
                hint=f"{name}=[...] with {len(others)} entries, in order. See {where}",
            )
    made = TableJoin(first.columns, where, first, (), how)
    for table, equal, before in zip(others, wanted, prefixes, strict=True):
        pairs = equal_columns(equal, made.columns, table.columns, where)
        link = Link(table, pairs, before)
        _check_link(made, link, how, len(others), where)
        names = [name for _, name in link.from_table]
        check_new_names(names, where)
        check_apart([*made.columns, *names], where)
        made = TableJoin((*made.columns, *names), where, first, (*made.links, link), how)
    _check_changelog(made, where)
    return made


def latest(stream: Stream, key: Sequence[str], where: Where) -> TableJoin:
    """The latest row of each key of a stream: a table by itself."""
    for name in key:
        if name not in stream.columns:
            message = f"There is no column {name!r} to keep the latest row of"
            raise not_there(message, name, stream.columns, where)
    return alone(Table(stream.columns, where, stream, tuple(key), None))


def alone(table: Table) -> TableJoin:
    """The current rows of one table."""
    found = TableJoin(table.columns, table.where, table, (), "inner")
    _check_changelog(found, table.where)
    return found


def _check_changelog(made: TableJoin, where: Where) -> None:
    if _TAKEN in made.columns:
        raise InvalidPipeline(
            f"The column name {_TAKEN!r} is reserved for the changelog of a table",
            hint=f"Rename it with derive() or select() first, or use a prefix. See {where}",
        )


def _check_link(made: TableJoin, link: Link, how: str, others: int, where: Where) -> None:
    """Raise unless a table can be joined to those before it."""
    if others == 1:
        return
    if how not in ("inner", "left"):
        raise InvalidPipeline(
            f"More than two tables cannot be joined with how={how!r}",
            hint=f"Use inner or left. See {where}",
        )
    if not link.by_key:
        raise InvalidPipeline(
            f"With more than two tables, each is found by its key, {', '.join(link.table.key)}",
            hint=f"Name exactly these columns in `on`. See {where}",
        )
    if len({made.origins[mine][0] for mine, _ in link.on}) > 1:
        raise InvalidPipeline(
            "The columns that find the rows of a table come from several tables: "
            f"{', '.join(mine for mine, _ in link.on)}",
            hint=f"Use columns of one table. See {where}",
        )
