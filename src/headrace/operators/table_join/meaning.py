"""Reference semantics of the table-table join: a nested loop over all rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headrace.operators.table_join.declare import Link, TableJoin
from headrace.oracle.rows import Row
from headrace.oracle.tables import Version

REVISION = "_revision"


def current(versions: Iterable[Version]) -> list[Version]:
    """The newest version of each key, deletions included."""
    newest: dict[tuple[Any, ...], Version] = {}
    for version in sorted(versions, key=lambda v: v.order):
        newest[version.key] = version
    return list(newest.values())


def joined_tables(join: TableJoin, versions: Sequence[Iterable[Version]]) -> list[Row]:
    """The rows of a join, each with its highest commit; `versions` has an entry for each table."""
    tables = [current(found) for found in versions]
    rows = [{**v.row, REVISION: v.commit} for v in tables[0] if v.row is not None]
    for link, table in zip(join.links, tables[1:], strict=True):
        rows = list(_linked(join, link, rows, table))
    return rows


def _linked(join: TableJoin, link: Link, rows: list[Row], table: list[Version]) -> Iterator[Row]:
    found = set()
    for row in rows:
        wanted = [row[mine] for mine, _ in link.on]
        matches = [
            version
            for version in table
            if version.row is not None
            and None not in wanted
            and wanted == [version.row[theirs] for _, theirs in link.on]
        ]
        for version in matches:
            found.add(version.key)
            yield _pair(link, row, version)
        if not matches and join.keeps_first:
            alone = {**row, **{name: None for _, name in link.from_table}}
            # The deletion of the key counts for the revision.
            by_key = {theirs: row[mine] for mine, theirs in link.on}
            key = tuple(by_key[name] for name in link.table.key) if link.by_key else None
            ended = [version.commit for version in table if version.key == key]
            yield {**alone, REVISION: max([row[REVISION], *ended])}
    if join.keeps_other:
        for version in table:
            if version.row is not None and version.key not in found:
                blank = dict.fromkeys(join.first.columns)
                equal = {mine: version.row[theirs] for mine, theirs in link.on}
                yield _pair(link, {**blank, **equal, REVISION: 0}, version)


def _pair(link: Link, row: Row, version: Version) -> Row:
    assert version.row is not None
    theirs = {name: version.row[column] for column, name in link.from_table}
    return {**row, **theirs, REVISION: max(row[REVISION], version.commit)}
