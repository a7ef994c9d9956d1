"""Dual writes beside capture: one service, one database, the same faults, two ways to a store.

The service writes each change to its database and then to a store of its own. The captured store
gets what the database committed. Both ways are killed, find their store down and are overtaken;
the service also writes to its store what its database then rolls back. All is chosen by a seed.

    python -m tests.recovery.dual_writes FOLDER SEED WRITES EACH
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import random
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NoReturn

from headrace.cdc.running import run
from headrace.cdc.sqlite.source import SqliteSource
from headrace.log import Log, Offset, open_log

Fault = Literal["killed", "down", "overtaken", "rolled back"]

FAULTS: tuple[Fault, ...] = ("killed", "down", "overtaken", "rolled back")
KEYS = 1_000

POINTS = ("read", "resolved", "encoded", "committed", "copied", "acknowledged")

_FAST = "PRAGMA synchronous = OFF"  # a killed process loses nothing by it


@dataclass(frozen=True)
class Write:
    """A change of a product: its new price, or None to delete it."""

    key: int
    price: int | None
    fault: Fault | None


def plan(seed: int, writes: int, each: int) -> list[Write]:
    """So many writes of the service, of which so many meet each of the faults."""
    chance = random.Random(seed)
    faults: list[Fault | None] = [fault for fault in FAULTS for _ in range(each)]
    faults += [None] * (writes - len(faults))
    chance.shuffle(faults)
    faults[-1] = None
    made: list[Write] = []
    for fault in faults:
        overtaken = made and made[-1].fault == "overtaken"
        key = made[-1].key if overtaken else chance.randrange(KEYS)
        made.append(Write(key, None if chance.random() < 0.2 else chance.randrange(10**6), fault))
    return made


class Store:
    """A store: the price of each product, and how far a captured topic is applied."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute(_FAST)
        self.db.execute("CREATE TABLE IF NOT EXISTS product (id INTEGER PRIMARY KEY, price INT)")
        self.db.execute("CREATE TABLE IF NOT EXISTS applied (offset INT)")

    def put(self, key: int, price: int | None) -> None:
        if price is None:
            self.db.execute("DELETE FROM product WHERE id = ?", (key,))
        else:
            self.db.execute("REPLACE INTO product VALUES (?, ?)", (key, price))

    def rows(self) -> dict[int, int]:
        return dict(self.db.execute("SELECT id, price FROM product"))


def serve(folder: Path, writes: list[Write], first: int) -> None:
    """The service: it writes to the database, then to its store, from some write on."""
    database, store = Store(folder / "shop.db"), Store(folder / "direct.db")
    late: dict[int, int | None] = {}
    for number, write in enumerate(writes[first:], first):
        (folder / "next").write_text(str(number + 1))
        database.db.execute("BEGIN")
        database.put(write.key, write.price)
        if write.fault == "rolled back":
            store.put(write.key, write.price)
            database.db.execute("ROLLBACK")
            continue
        database.db.execute("COMMIT")
        if write.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif write.fault == "overtaken":
            late[write.key] = write.price  # its thread waits, and the next one does not
        elif write.fault != "down":  # a store that is down gets nothing; the service goes on
            store.put(write.key, write.price)
            if write.key in late:
                store.put(write.key, late.pop(write.key))
    for key, price in late.items():
        store.put(key, price)


def capture(folder: Path, fault: Fault | None, point: str) -> None:
    """The captured way: from the database into the log, from there into a store."""

    def die(at: str) -> None:
        if fault == "killed" and at == point:
            os.kill(os.getpid(), signal.SIGKILL)

    with open_log(f"file:{folder / 'log'}") as log:
        with contextlib.closing(SqliteSource(folder / "shop.db", tables=["product"])) as source:
            run(source, log, "shop", until_caught_up=True, crash_point=die)
        apply(log, Store(folder / "captured.db"), fault)


def apply(log: Log, store: Store, fault: Fault | None) -> None:
    """Bring a store up to date. Its rows and how far it is are one transaction."""
    ((done,),) = store.db.execute("SELECT coalesce(max(offset), 0) FROM applied").fetchall()
    if fault == "down":
        return  # it gets everything the next time
    store.db.execute("BEGIN")
    for batch in log.read("shop.main.product", start=Offset(done)):
        for record in batch.records():
            done = record.offset + 1
            if record.value is not None:
                row = record.value["after"]
                key = (row or record.value["before"])["id"]
                store.put(key, None if row is None else row["price"])
    store.db.execute("INSERT INTO applied VALUES (?)", (done,))
    if fault == "overtaken":  # here a fault can only be to die before the commit
        os.kill(os.getpid(), signal.SIGKILL)
    store.db.execute("COMMIT")


def differences(
    database: dict[int, int], store: dict[int, int], writes: list[Write]
) -> dict[str, int]:
    """Count the rows in which a store differs from its database, by the last fault they met."""
    met = {write.key: write.fault for write in writes if write.fault is not None}
    differ = [key for key in database.keys() | store.keys() if database.get(key) != store.get(key)]
    found = Counter(met.get(key, "none") for key in differ)
    return {"rows": len(database), "different": len(differ), **found}


def compare(folder: Path, seed: int, count: int, each: int) -> dict[str, dict[str, int]]:
    """Run both ways side by side; return how each store differs from the database at the end.

    For each time that the service is killed, a capture is killed, too, and the next one finds its
    store down, or dies while it writes to it.
    """
    importlib.import_module("pandas")  # pyarrow loads it, which each child would do again
    writes = plan(seed, count, each)
    Store(folder / "shop.db").db.close()
    _in_child(partial(capture, folder, None, ""))  # attach
    first = 0
    for kill in itertools.count():
        _in_child(partial(serve, folder, writes, first))
        first = int((folder / "next").read_text())
        if first == len(writes):
            break
        _in_child(partial(capture, folder, "killed", POINTS[kill % len(POINTS)]))
        _in_child(partial(capture, folder, "down" if kill % 2 else "overtaken", ""))
    _in_child(partial(capture, folder, None, ""))
    database = Store(folder / "shop.db").rows()
    return {
        name: differences(database, Store(folder / f"{name}.db").rows(), writes)
        for name in ("direct", "captured")
    }


def _in_child(work: Callable[[], None]) -> None:
    """Do something in a process that may be killed."""
    if not (child := os.fork()):
        _end(work)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a process ended with {os.waitstatus_to_exitcode(status)}")


def _end(work: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    found = compare(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    print(json.dumps(found))
