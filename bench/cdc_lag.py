"""Lag of captured changes: from the commit in a database until a reader of each store sees it.

A row is updated in a transaction of its own, again and again. `headrace cdc run` captures it, and
`headrace run` keeps a view of it in SQLite and in every store, all at once, as two processes.
Readers ask each store for the row through its own client, every few milliseconds. `p50` and `p99`
are of all updates after the first seconds, in which Java compiles.

The baseline of the topic is a client that only reads the replication slot, that of the view is the
topic, and that of a store is the view: so a ratio says what a hop costs. From SQLite there is no
slot, and the baseline of its topic is the topic from PostgreSQL.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pyarrow as pa
from psycopg2.extras import LogicalReplicationConnection, ReplicationMessage, StopReplication

import headrace as hr
from bench.measure import Progress, Result, cost, report
from headrace.errors import HeadraceError
from headrace.log import Log, open_log
from headrace.store.contract import Store
from headrace.store.following import followed_in
from headrace.store.location import database_of
from tests.servers.postgresql import Postgresql
from tests.servers.redis import Redis

SLOT, TOPIC, VIEW = "the slot alone", "topic", "view in SQLite"
_TABLE = "CREATE TABLE pulses (id bigint PRIMARY KEY, seq bigint, note text)"
_FILL = "INSERT INTO pulses VALUES (1, -1, 'no pulse yet')"
_LOOK, _LOOK_AT_FILES = 0.005, 0.02
"""Seconds between two looks of a reader. To open a Delta table takes milliseconds itself."""
_PATIENCE = 180.0

_PROGRAM = """
import os
import headrace as hr

app = hr.App("lag")
pulses = app.captured({topic!r}, schema="id bigint, seq bigint, note string", key="id")
stores = None
if "LAG_REDIS" in os.environ:
    stores = [hr.Postgres(os.environ["LAG_POSTGRES"]), hr.Redis(os.environ["LAG_REDIS"])]
    stores += ["search:note", hr.Delta(os.environ["LAG_DELTA"])]
app.view("pulses", pulses, store=stores)
"""

Look = Callable[[], int]
"""The number of the newest update that a reader sees."""


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes a few seconds for each part, as a smoke test."""
    settings = settings_of(quick=quick)
    return report("cdc-lag", settings, measured(settings, progress))


def settings_of(*, quick: bool) -> dict[str, Any]:
    """The settings of the lag in the report of a benchmark."""
    return {
        "lag_commits_per_second": 10,
        "lag_seconds": 6.0 if quick else 40.0,
        "lag_skipped_seconds": 2.0 if quick else 10.0,
    }


def measured(settings: Mapping[str, Any], progress: Progress) -> list[Result]:
    """The lag of every hop from PostgreSQL, and that of the first ones from SQLite."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as made:
        folder = Path(made)
        progress("lag: from PostgreSQL")
        postgres = _from_postgres(folder / "postgresql", settings)
        progress("lag: from SQLite")
        sqlite = _from_sqlite(folder / "sqlite", settings)
    results = []
    for name, waits in postgres.items():
        if name != SLOT:
            before = {TOPIC: SLOT, VIEW: TOPIC}.get(name, VIEW)
            results += _results(f"lag, {name}", waits, before, postgres[before])
    for name, waits in sqlite.items():
        results += _results(f"lag, {name}, from SQLite", waits, "from PostgreSQL", postgres[name])
    return results


def _results(name: str, ours: np.ndarray, baseline: str, theirs: np.ndarray) -> list[Result]:
    return [
        cost(
            f"{name}, p{share}",
            "ms",
            float(np.percentile(ours, share)),
            baseline,
            float(np.percentile(theirs, share)),
        )
        for share in (50, 99)
    ]


def _from_postgres(folder: Path, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    with (
        Postgresql.running() as server,
        server.database() as source,
        server.database() as warehouse,
        Redis.running() as redis,
        contextlib.closing(source.connect()) as writer,
        writer.cursor() as cursor,
    ):
        cursor.execute(_TABLE)
        cursor.execute(_FILL)
        stores: dict[str, Store] = {
            "PostgreSQL": hr.Postgres(warehouse.url),
            "Redis": hr.Redis(redis.url),
            "search index": hr.Search(("note",)),
            "Delta table": hr.Delta(str(folder / "delta")),
        }
        environment = {
            "LAG_POSTGRES": warehouse.url,
            "LAG_REDIS": redis.url,
            "LAG_DELTA": str(folder / "delta"),
        }

        def commit(number: int) -> None:
            update = "UPDATE pulses SET seq = %s, note = %s WHERE id = 1"
            cursor.execute(update, (number, f"pulse {number}"))

        with _Chain(folder, source.url, "bench.public.pulses", environment, stores) as chain:
            cursor.execute("CREATE PUBLICATION bare FOR TABLE pulses")
            chain.add(SLOT, _slot(source.url))
            return chain.measured(commit, settings)


def _from_sqlite(folder: Path, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    folder.mkdir()
    path = folder / "source.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(_TABLE)
        db.execute(_FILL)

        def commit(number: int) -> None:
            update = "UPDATE pulses SET seq = ?, note = ? WHERE id = 1"
            db.execute(update, (number, f"pulse {number}"))

        with _Chain(folder, str(path), "bench.main.pulses", {}, {}) as chain:
            return chain.measured(commit, settings)


@dataclass
class _Reader:
    """A thread that notes when it first sees a number, and which."""

    look: Look
    pause: float
    seen: list[tuple[float, int]] = field(default_factory=list)
    failure: BaseException | None = None

    def run(self, over: threading.Event) -> None:
        newest = -1
        try:
            while not over.is_set():
                number = self.look()
                if number > newest:
                    self.seen.append((time.perf_counter(), number))
                    newest = number
                time.sleep(self.pause)
        except BaseException as error:  # the benchmark raises it
            self.failure = error

    @property
    def newest(self) -> int:
        if self.failure is not None:
            raise self.failure
        return self.seen[-1][1] if self.seen else -1

    def waits(self, commits: np.ndarray, first: int) -> np.ndarray:
        """The milliseconds from each commit, from the number `first` on, until it was seen."""
        times, numbers = (np.array(column) for column in zip(*self.seen, strict=True))
        wanted = np.arange(first, len(commits))
        waits: np.ndarray = times[np.searchsorted(numbers, wanted)] - commits[first:]
        milliseconds: np.ndarray = np.maximum(waits, 0) * 1_000
        return milliseconds


class _Chain:
    """The two processes, and a reader at each place that a change reaches."""

    def __init__(
        self,
        folder: Path,
        database: str,
        topic: str,
        environment: Mapping[str, str],
        stores: Mapping[str, Store],
    ) -> None:
        self._folder = folder
        self._url = f"file:{folder}/log"
        self._database = database
        self._topic = topic
        self._environment = {**os.environ, **environment, "HEADRACE_LOG": self._url}
        self._stores = stores
        self._readers: dict[str, _Reader] = {}
        self._over = threading.Event()
        self._stack = contextlib.ExitStack()
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> _Chain:
        self._folder.mkdir(exist_ok=True)
        program = self._folder / "lag.py"
        program.write_text(_PROGRAM.format(topic=self._topic))
        words = ("attach", self._database, "--tables", "pulses", "--prefix", "bench")
        subprocess.run(
            self._command("cdc", *words),
            env=self._environment,
            check=True,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._start("cdc", "run", "bench")
            self._start("run", f"{program}:app", "--brief")
            self._log = self._stack.enter_context(open_log(self._url))
            self._wait_for_stores()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait()
        self._stack.close()

    def add(self, name: str, look: Look, pause: float = _LOOK) -> None:
        """Begin to look at one more place."""
        reader = self._readers[name] = _Reader(look, pause)
        threading.Thread(target=reader.run, args=(self._over,), daemon=True).start()

    def measured(
        self, commit: Callable[[int], None], settings: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """Commit at the wanted pace; return the waits of each reader in milliseconds."""
        pace, skipped = 1 / settings["lag_commits_per_second"], settings["lag_skipped_seconds"]
        count = round((settings["lag_seconds"] + skipped) / pace)
        dice = np.random.default_rng(1)
        commits = []
        for number in range(count):
            commit(number)
            commits.append(time.perf_counter())
            # Not in step with whatever looks at something every so many milliseconds.
            time.sleep(pace * dice.uniform(0.5, 1.5))
        self._until(lambda: all(r.newest >= count - 1 for r in self._readers.values()))
        first = round(skipped / pace)
        return {name: r.waits(np.array(commits), first) for name, r in self._readers.items()}

    def _wait_for_stores(self) -> None:
        """Wait until the first row is everywhere, and begin to look."""
        log = self._log
        self._until(lambda: _followed(log, "") is not None)
        self.add(TOPIC, _topic(log, self._topic))
        self.add(VIEW, _view(database_of(log.home, "lag")))
        for name, store in self._stores.items():
            self._until(lambda store=store: _filled(log, store))  # type: ignore[misc]
            pause = _LOOK_AT_FILES if isinstance(store, hr.Delta) else _LOOK
            self.add(name, _store(log, store), pause)

    def _until(self, done: Callable[[], bool]) -> None:
        end = time.perf_counter() + _PATIENCE
        while not done():
            for process in self._running:
                if process.poll() is not None:
                    said = (self._folder / "output.txt").read_text()
                    raise HeadraceError("A process of the benchmark has ended", hint=said)
            if time.perf_counter() > end:
                said = (self._folder / "output.txt").read_text()
                raise HeadraceError(f"Nothing came in {_PATIENCE:.0f} s", hint=said)
            time.sleep(0.1)

    def _start(self, *words: str) -> None:
        with (self._folder / "output.txt").open("ab") as output:
            self._running.append(
                subprocess.Popen(
                    self._command(*words), env=self._environment, stdout=output, stderr=output
                )
            )

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "headrace.cli.main", *words]


def _followed(log: Log, form: str) -> Any:
    return followed_in(log, "lag", "pulses", form)


def _filled(log: Log, store: Store) -> bool:
    followed = _followed(log, store.form)
    with store.live(followed.view) as table:
        return table.position() is not None


def _topic(log: Log, topic: str) -> Look:
    """The records after the first, which is the snapshot's: one for each update."""
    begin = log.topic(topic).partitions[0].end
    return lambda: log.topic(topic).partitions[0].end - begin - 1


def _view(path: Path) -> Look:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)

    def look() -> int:
        found = db.execute("SELECT seq FROM pulses WHERE id = 1").fetchone()
        return -1 if found is None else int(found[0])

    return look


def _store(log: Log, store: Store) -> Look:
    followed = _followed(log, store.form)
    key = pa.table({"id": pa.array([1], pa.int64())})
    tables: list[Any] = []

    def look() -> int:
        if not tables:  # in the thread that uses it
            tables.append(store.live(followed.view))
        for batch in tables[0].find(key):
            for number in batch.column("seq").to_pylist():
                return int(number)
        return -1

    return look


def _slot(url: str) -> Look:
    """A client that counts the commits that a slot gives it, and does nothing else."""
    seen = -1
    connection = psycopg2.connect(url, connection_factory=LogicalReplicationConnection)
    cursor = connection.cursor()
    cursor.create_replication_slot("bare", output_plugin="pgoutput")
    options = {"proto_version": "1", "publication_names": "bare"}
    cursor.start_replication("bare", options=options, decode=False)

    def take(message: ReplicationMessage) -> None:
        nonlocal seen
        seen += message.payload[:1] == b"C"

    def listen() -> None:
        with contextlib.suppress(psycopg2.Error, StopReplication):
            cursor.consume_stream(take)

    threading.Thread(target=listen, daemon=True).start()
    return lambda: seen
