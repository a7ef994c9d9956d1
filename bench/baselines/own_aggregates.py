"""Accounts with the `eventsourcing` library, as its guide says, on its SQLite recorder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import IntegrityError
from eventsourcing.sqlite import SQLiteApplicationRecorder


class Account(Aggregate):
    """An account that is never overdrawn."""

    @event("Opened")
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.balance = 0

    def deposit(self, amount: int) -> None:
        """Decide a deposit."""
        if amount <= 0:
            raise ValueError(amount)
        self._deposited(amount)

    @event("Deposited")
    def _deposited(self, amount: int) -> None:
        self.balance += amount


class Accounts(Application[UUID]):
    """The application, with a cache of aggregates or without."""


def opened(path: Path, *, cached: bool) -> Accounts:
    """The application on a database in WAL mode with full syncs."""
    found = Accounts(
        env={
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(path),
            "SQLITE_LOCK_TIMEOUT": "60",
            "AGGREGATE_CACHE_MAXSIZE": "10000" if cached else "",
        }
    )
    recorder = found.recorder
    assert isinstance(recorder, SQLiteApplicationRecorder)
    with recorder.datastore.get_connection(commit=True) as connection:
        cursor = connection.cursor()
        settings = []
        for name in ("journal_mode", "synchronous"):
            cursor.execute(f"PRAGMA {name}")
            settings.append(cursor.fetchone()[0])
    assert settings == ["wal", 2], f"the baseline is not as durable: {settings}"
    return found


def open_accounts(path: Path, count: int) -> list[UUID]:
    """Open accounts, each in a commit of its own."""
    app = opened(path, cached=False)
    made = [Account(owner=f"owner {n}") for n in range(count)]
    for account in made:
        app.save(account)
    app.close()
    return [account.id for account in made]


def deposit(
    path: Path,
    ids: list[UUID],
    count: int,
    begin: Callable[[], Any],
    end: Callable[[], Any],
    *,
    cached: bool,
) -> None:
    """Deposit in turn: load, decide, append; again if another writer was first."""
    app = opened(path, cached=cached)
    begin()
    for n in range(count):
        while True:
            try:
                account: Account = app.repository.get(ids[n % len(ids)])
                account.deposit(1)
                app.save(account)
                break
            except IntegrityError:
                continue
    end()
    app.close()


def balances(path: Path, ids: list[UUID]) -> int:
    """The sum of all balances."""
    app = opened(path, cached=False)
    found: list[Account] = [app.repository.get(id) for id in ids]
    app.close()
    return sum(account.balance for account in found)
