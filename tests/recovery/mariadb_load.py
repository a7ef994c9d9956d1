"""Random transactions on two tables of a shop in MariaDB: all that an application does to rows."""

from __future__ import annotations

import contextlib
from typing import Any

import pymysql

from tests.recovery.loading import Loading
from tests.servers.mariadb import Database

TABLES = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer varchar(40), total decimal(12, 2), "
    "note mediumtext, at datetime(6) DEFAULT now(6))",
    "CREATE TABLE `lines` (order_id bigint, line int, product varchar(40), "
    "PRIMARY KEY (order_id, line))",
    # The number of changes that each transaction made.
    "CREATE TABLE ledger (tx bigint PRIMARY KEY AUTO_INCREMENT, changes int)",
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
            # A server that was killed closes the connection, or refuses a new one.
            with contextlib.suppress(pymysql.err.OperationalError, pymysql.err.InterfaceError):
                connection = self._database.connect()
                with contextlib.closing(connection), connection.cursor() as cursor:
                    while done < transactions:
                        done += 1
                        self._transaction(cursor)

    def _transaction(self, cursor: Any) -> None:
        if self._random.random() < 0.02:
            cursor.execute(self._random.choice(("TRUNCATE `lines`", "TRUNCATE orders")))
            return
        cursor.execute("BEGIN")
        changes = sum(self._change(cursor) for _ in range(self._random.choice((1, 1, 1, 2, 5))))
        if self._random.random() < 0.15:
            cursor.execute("ROLLBACK")
            return
        if self._random.random() < 0.2:
            cursor.execute("SAVEPOINT s")
            self._change(cursor)
            cursor.execute("ROLLBACK TO s")
        cursor.execute("INSERT INTO ledger (changes) VALUES (%s)", (changes,))
        cursor.execute("COMMIT")

    def _change(self, cursor: Any) -> int:
        """Make one change. Returns how many rows of the topics it makes."""
        chance, first = self._random.random(), self._random.randrange(_IDS)
        if chance < 0.04:  # more than a commit may have
            start = self._new()
            cursor.execute(f"INSERT INTO `lines` SELECT {start}, seq, 'bulk' FROM seq_1_to_700")
        elif chance < 0.3:
            note = "x" * self._random.choice((0, 10, 5_000))
            cursor.execute(
                "INSERT IGNORE INTO orders (id, customer, total, note) "
                "SELECT %s + seq, 'customer', seq, %s FROM seq_0_to_9",
                (first, note),
            )
        elif chance < 0.45:
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
                "INSERT IGNORE INTO `lines` VALUES (%s, 1, 'a'), (%s, 2, NULL)", (first, first)
            )
        else:
            cursor.execute("DELETE FROM orders WHERE id BETWEEN %s AND %s", (first, first + 5))
        return int(cursor.rowcount)
