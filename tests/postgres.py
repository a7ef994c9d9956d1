"""Reading a PostgreSQL source in tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from headrace.cdc.contract import Change, SourceTransaction
from headrace.cdc.postgres.source import PostgresSource
from tests.servers.postgresql import Database
from tests.waiting import wait_until


@contextlib.contextmanager
def reading(database: Database, *tables: str) -> Iterator[PostgresSource]:
    """A source that is attached and reads from now on."""
    with PostgresSource(database.url, tables) as source:
        source.attach()
        assert source.begin(None) is None
        yield source


def read_all(source: PostgresSource) -> list[SourceTransaction]:
    """The transactions up to now, without news of positions."""
    head = source.state(None).head
    found: list[SourceTransaction] = []

    def passed() -> bool:
        read = source.read(0.1)
        found.extend(read)
        return bool(read) and source.passed(read[-1].position, head)

    wait_until(passed)
    return [transaction for transaction in found if transaction.changes or not transaction.whole]


def changes(source: PostgresSource) -> list[Change]:
    """The changes up to now."""
    return [change for transaction in read_all(source) for change in transaction.changes]
