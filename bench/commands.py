"""Commands against the `eventsourcing` library: load, decide, append, answered once durable.

`1 writer` and `8 writers` are processes that deposit into 20 accounts each, in turn, one command
after the other. With `hot account` all deposit into the same one, and who loses decides again.
headrace also records each command with its outcome; `events only` leaves that out, which is all
that the baseline stores. `grouped` writers share syncs (`domain.open(log, grouped=True)`).

The baseline is `eventsourcing` with its SQLite recorder, WAL and synchronous FULL, with its cache
of aggregates or without, whichever is faster. Both sides return from a command when it is on disk
(fsync). Afterwards all balances are added up.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import headrace.eventsourcing as es
from bench.baselines import own_aggregates
from bench.measure import Progress, Result, rate, report
from headrace.errors import Contended
from headrace.log import open_log

Wait = Callable[[], Any]

ACCOUNTS = 20
WRITERS = 8

DURABILITY = {
    "ours": "acks=synced: fsync before a command is answered",
    "eventsourcing": "SQLite in WAL mode, synchronous=FULL: fsync before save() returns",
}


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` handles a tenth of the commands, as a smoke test."""
    settings: dict[str, Any] = {
        "commands": 300 if quick else 3_000,
        "accounts_per_writer": ACCOUNTS,
        "rounds": 1 if quick else 3,
        "durability": DURABILITY,
    }
    results = list(_measured(settings["commands"], settings["rounds"], progress))
    return report("commands", settings, results)


# Our accounts


@dataclass(frozen=True)
class Account:
    """The state of an account."""

    owner: str = ""
    balance: int = 0


@dataclass(frozen=True)
class Opened:
    """An account was opened."""

    owner: str


@dataclass(frozen=True)
class Deposited:
    """Money was deposited."""

    amount: int


@dataclass(frozen=True)
class Open:
    """Open an account."""

    owner: str


@dataclass(frozen=True)
class Deposit:
    """Deposit money."""

    amount: int


def _decide(state: Account, command: Any) -> Any:
    if isinstance(command, Open):
        return es.refuse("it is open") if state.owner else Opened(command.owner)
    return Deposited(command.amount) if command.amount > 0 else es.refuse("nothing to deposit")


def _evolve(state: Account, event: Any) -> Account:
    if isinstance(event, Opened):
        return Account(event.owner)
    return replace(state, balance=state.balance + event.amount)


ACCOUNT = es.aggregate(
    "account",
    initial=Account(),
    decide=_decide,
    evolve=_evolve,
    events=[es.event("account-opened", Opened), es.event("money-deposited", Deposited)],
    commands=[es.command("open", Open), es.command("deposit", Deposit)],
)


# The sides


@dataclass(frozen=True)
class Ours:
    """headrace. With `recorded`, commands are in the log too."""

    recorded: bool = True
    grouped: bool = False

    @property
    def domain(self) -> es.Domain:
        return es.Domain("bank", [ACCOUNT], record_commands=self.recorded)

    def open(self, home: Path, count: int) -> list[Any]:
        names = [f"a-{n}" for n in range(count)]
        with open_log(f"file:{home}") as log, self.domain.open(log) as store:
            for name in names:
                store.handle(ACCOUNT, name, Open("somebody"))
        return names

    def deposit(self, home: Path, ids: Sequence[Any], count: int, begin: Wait, end: Wait) -> None:
        with (
            open_log(f"file:{home}") as log,
            self.domain.open(log, grouped=self.grouped) as store,
        ):
            begin()
            for n in range(count):
                while True:
                    try:
                        store.handle(ACCOUNT, ids[n % len(ids)], Deposit(1))
                        break
                    except Contended:
                        continue
            end()

    def balances(self, home: Path, ids: Sequence[Any]) -> int:
        with open_log(f"file:{home}") as log, self.domain.open(log) as store:
            return sum(store.load(ACCOUNT, id).state.balance for id in ids)


@dataclass(frozen=True)
class Theirs:
    """The `eventsourcing` library."""

    cached: bool

    def open(self, home: Path, count: int) -> list[Any]:
        home.mkdir()
        return list(own_aggregates.open_accounts(home / "events.db", count))

    def deposit(self, home: Path, ids: Sequence[Any], count: int, begin: Wait, end: Wait) -> None:
        path = home / "events.db"
        own_aggregates.deposit(path, list(ids), count, begin, end, cached=self.cached)

    def balances(self, home: Path, ids: Sequence[Any]) -> int:
        return own_aggregates.balances(home / "events.db", list(ids))


Side = Ours | Theirs


# Measuring

_CONTEXT = multiprocessing.get_context("spawn")


def _measured(commands: int, rounds: int, progress: Progress) -> Iterator[Result]:
    ours = {
        "": Ours(),
        ", events only": Ours(recorded=False),
        ", grouped": Ours(grouped=True),
        ", events only, grouped": Ours(recorded=False, grouped=True),
    }
    sides: tuple[Side, ...] = (*ours.values(), Theirs(False), Theirs(True))
    for name, writers, hot in (
        ("1 writer", 1, False),
        (f"{WRITERS} writers", WRITERS, False),
        (f"{WRITERS} writers, hot account", WRITERS, True),
    ):
        best = [float("inf")] * len(sides)
        for turn in range(rounds):
            progress(f"{name}, round {turn + 1}")
            for index, side in enumerate(sides):
                best[index] = min(best[index], _timed(side, writers, commands, hot=hot))
        theirs = min(best[len(ours) :])
        for part, spent in zip(ours, best, strict=False):
            yield rate(f"{name}{part}", "commands/s", commands, spent, "eventsourcing", theirs)


def _timed(side: Side, writers: int, commands: int, *, hot: bool) -> float:
    """Seconds that writers take for so many commands together."""
    share = commands // writers
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder) / "events"
        ids = side.open(home, 1 if hot else ACCOUNTS * writers)
        start, done = _CONTEXT.Barrier(writers + 1), _CONTEXT.Barrier(writers + 1)
        children = []
        for n in range(writers):
            mine = ids if hot else ids[n * ACCOUNTS : (n + 1) * ACCOUNTS]
            arguments = (side, home, mine, share, start, done)
            children.append(_CONTEXT.Process(target=_deposit, args=arguments))
        for child in children:
            child.start()
        start.wait()
        begin = time.perf_counter()
        done.wait()
        spent = time.perf_counter() - begin
        for child in children:
            child.join()
        assert all(child.exitcode == 0 for child in children), "a writer has failed"
        assert side.balances(home, ids) == share * writers, "a command is lost or doubled"
    return spent * commands / (share * writers)


def _deposit(side: Side, home: Path, ids: Sequence[Any], count: int, start: Any, done: Any) -> None:
    try:
        side.deposit(home, ids, count, start.wait, done.wait)
    except BaseException:
        start.abort()
        done.abort()
        raise
