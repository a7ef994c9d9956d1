"""Chunks of a snapshot, each with its exact place in the binlog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.cdc.contract import Chunk, Row, SourceTransaction, Table
from headrace.cdc.mysql.columns import DeclaredColumn, quoted
from headrace.cdc.mysql.position import Position


class BinlogChunk(Chunk):
    """Rows of one transaction. It sees what the binlog had when it began, and nothing later."""

    def __init__(self, rows: list[Row], high: Position, last: Row | None) -> None:
        self.rows = rows
        self.high = str(high)
        self.last = last
        self._high = high

    def shows(self, position: str, *, amid: bool) -> bool:
        """True if the rows show what was read up to a position, and after it if amid."""
        place = Position.parse(position)
        if place.server != self._high.server:
            return True  # Nothing was read from this server yet.
        return not place.passed(self._high) if amid else self._high.passed(place)

    def sees(self, transaction: SourceTransaction) -> bool:
        position = Position.parse(transaction.position)
        if not transaction.whole:  # A part has the position before its transaction.
            return not position.passed(self._high)
        return self._high.passed(position)


def read_chunk(
    cursor: Any,
    table: Table,
    columns: Mapping[str, DeclaredColumn],
    after: Row | None,
    limit: int,
    server: int,
) -> BinlogChunk:
    """Read the next rows of a table in a transaction of their own."""
    query, parameters = _query(table, columns, after, limit)
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    try:
        cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
        place = {str(name).lower(): value for name, value in cursor.fetchall()}
        cursor.execute(query, parameters)
        rows = list(cursor.fetchall())
    finally:
        cursor.execute("COMMIT")
    file, offset = place["binlog_snapshot_file"], int(place["binlog_snapshot_position"])
    last = table.key_of(rows[-1]) if len(rows) == limit else None
    return BinlogChunk(rows, Position(file, offset, server), last)


def _query(
    table: Table, columns: Mapping[str, DeclaredColumn], after: Row | None, limit: int
) -> tuple[str, list[Any]]:
    selected = ", ".join(columns[name].selected for name in table.columns.names)
    order = ", ".join(map(quoted, table.key))
    where, parameters = "", []
    if after is not None:
        # The server has no index for (a, b) > (1, 2). The first condition is one that it has.
        values = [columns[name].literal(v) for name, v in zip(table.key, after, strict=True)]
        ways = []
        for depth, name in enumerate(table.key):
            same = [f"{quoted(one)} = %s" for one in table.key[:depth]]
            ways.append(f"({' AND '.join([*same, f'{quoted(name)} > %s'])})")
            parameters += values[: depth + 1]
        where = f" WHERE {quoted(table.key[0])} >= %s AND ({' OR '.join(ways)})"
        parameters = [values[0], *parameters]
    name = f"{quoted(table.schema)}.{quoted(table.name)}"
    query = f"SELECT {selected} FROM {name}{where} ORDER BY {order} LIMIT %s"
    return query, [*parameters, limit]
