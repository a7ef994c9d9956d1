"""Random transactions on two tables of a shop: all that an application does to its rows."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import psycopg2

from tests.recovery.loading import Loading
from tests.servers.postgresql import Database

TABLES = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, total numeric(12, 2), note text)",
    # Notes are stored apart, so an update of something else does not send them.
    "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL",
    "CREATE TABLE lines (order_id bigint, line int, product text, PRIMARY KEY (order_id, line))",
    # What each transaction did: the number of its changes, or null after a TRUNCATE.
    "CREATE TABLE ledger (tx bigint PRIMARY KEY, changes int)",
)

_IDS = 400


class Load(Loading):
    """Transactions of a seed. A server that is away is waited for."""

    def __init__(self, database: Database, seed: int) -> None:
        super().__init__(seed)
        self._database = database

    def run(self, transactions: int) -> None:
        done = 0
        while done < transactions:
            try:
                connection = self._database.connect()
                with contextlib.closing(connection), connection.cursor() as cursor:
                    while done < transactions:
                        done += 1
                        self._transaction(cursor)
            except psycopg2.Error as error:
                if isinstance(error, psycopg2.errors.IntegrityError):
                    continue
                if error.pgcode not in (None, "57P01", "57P02", "57P03"):
                    raise

    def _transaction(self, cursor: Any) -> None:
        cursor.execute("BEGIN")
        changes: int | None = 0
        for _ in range(self._random.choice((1, 1, 1, 2, 5))):
            made = self._change(cursor)
            changes = None if changes is None or made is None else changes + made
        if self._random.random() < 0.15:
            cursor.execute("ROLLBACK")
            return
        if self._random.random() < 0.2:
            cursor.execute("SAVEPOINT s")
            self._change(cursor)
            cursor.execute("ROLLBACK TO s")
        cursor.execute("INSERT INTO ledger VALUES (txid_current(), %s)", (changes,))
        cursor.execute("COMMIT")

    def _change(self, cursor: Any) -> int | None:
        """Make one change. Returns how many rows of the topics it makes."""
        chance, first = self._random.random(), self._random.randrange(_IDS)
        if chance < 0.02:
            cursor.execute("TRUNCATE lines")
            return None
        if chance < 0.04:
            cursor.execute("TRUNCATE orders, lines")
            return None
        if chance < 0.07:  # more than a commit may have
            cursor.execute(
                "INSERT INTO lines SELECT %s, i, 'bulk' FROM generate_series(1, 700) i "
                "ON CONFLICT (order_id, line) DO UPDATE SET product = 'bulk again'",
                (self._new(),),
            )
        elif chance < 0.17:
            start = self._new(20)
            text = "".join(f"{start + i}\tcopied {i}\t{i}.5\t\\N\n" for i in range(20))
            cursor.copy_expert("COPY orders FROM STDIN", io.StringIO(text))
            return 20
        elif chance < 0.4:
            note = "x" * self._random.choice((0, 10, 5_000))
            cursor.execute(
                "INSERT INTO orders SELECT %s + i, 'customer', i, %s FROM generate_series(0, 4) i "
                "ON CONFLICT (id) DO UPDATE SET total = orders.total + 1",
                (first, note),
            )
        elif chance < 0.5:
            cursor.execute("UPDATE orders SET id = %s WHERE id = %s", (self._new(), first))
            return 2 * int(cursor.rowcount)
        elif chance < 0.7:
            cursor.execute(
                "UPDATE orders SET total = total + 1, customer = 'moved' "
                "WHERE id BETWEEN %s AND %s",
                (first, first + 10),
            )
        elif chance < 0.85:
            cursor.execute(
                "INSERT INTO lines VALUES (%s, 1, 'a'), (%s, 2, NULL) "
                "ON CONFLICT (order_id, line) DO UPDATE SET product = 'b'",
                (first, first),
            )
        else:
            cursor.execute("DELETE FROM orders WHERE id BETWEEN %s AND %s", (first, first + 5))
        return int(cursor.rowcount)
