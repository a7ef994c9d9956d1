"""A read model of balances, rebuilt from stored events with an upcaster at work.

The events are in the topic of a domain, a third of them in an older version: with another name and
another type of the amount, and without a currency. They are written as whole columns, and only
those after the snapshots have tags, which Spark does not read.

`replay`: events/s of `hr.run(app, over=hr.LogRange())` on Spark, from the log to the stored view.
`replay in batches`: the same in micro-batches with a checkpoint, as `headrace rebuild` does beside
the live view. The baseline folds the same events in plain Python: `json.loads`, the upcaster by
hand and `evolve` on a frozen dataclass. It takes a part of them and is scaled up.

`states from snapshots`: seconds until `store.load` has loaded the state of every account from its
snapshot and the 3 events after it. It is the same balances, but no read model and no Spark: a view
is always rebuilt from events. Its baseline is the same fold of all events. `50 million,
extrapolated` is not measured: it is what the rate of `replay` makes of them.

All balances are compared with those of the generator.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import headrace as hr
import headrace.eventsourcing as es
from bench.measure import Progress, Result, best_of, cost, rate, report, seconds
from headrace.application.run import Run
from headrace.log import Log, open_log
from headrace.runtime.session import spark_session

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
CHUNK = 200_000
TAIL = 3
"""The events of each account after its snapshot."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Account:
    """The state of an account."""

    cents: int = 0


@dataclass(frozen=True)
class Deposited:
    """Money was deposited."""

    cents: int
    currency: str


@dataclass(frozen=True)
class Withdrawn:
    """Money was withdrawn."""

    cents: int


def _evolve(state: Account, event: Any) -> Account:
    sign = 1 if isinstance(event, Deposited) else -1
    return replace(state, cents=state.cents + sign * event.cents)


DEPOSITED = es.event(
    "money-deposited",
    Deposited,
    version=2,
    upcast=[es.rename("amount", "cents"), es.retype("cents", str, int),
            es.default("currency", "EUR")],
)  # fmt: skip
WITHDRAWN = es.event("money-withdrawn", Withdrawn)
ACCOUNT = es.aggregate(
    "account",
    initial=Account(),
    decide=lambda state, command: (),
    evolve=_evolve,
    events=[DEPOSITED, WITHDRAWN],
    snapshot_every=100,
)
BANK = es.Domain("bank", [ACCOUNT], partitions=2, record_commands=False)


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes few events, as a smoke test."""
    settings: dict[str, Any] = {
        "events": 40_000 if quick else 10_000_000,
        "accounts": 100 if quick else 10_000,
        "folded_in_python": 40_000 if quick else 1_000_000,
        "older_versions": "a third of all events",
        "rounds": 1 if quick else 2,
    }
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        home = Path(name)
        job = Job(spark_session(log_file=home / "spark.log"), f"file:{home}/log", settings)
        progress(f"{job.events:,} events")
        job.fill()
        results = list(job.results(progress))
    return report("replay", settings, results)


@dataclass
class Job:
    """A log with events, and the balances that they add up to."""

    spark: SparkSession
    url: str
    settings: dict[str, Any]
    balances: Any = None

    @property
    def events(self) -> int:
        return int(self.settings["events"])

    @property
    def accounts(self) -> int:
        return int(self.settings["accounts"])

    def results(self, progress: Progress) -> Iterator[Result]:
        """The measurements."""
        rounds = int(self.settings["rounds"])
        progress("replay")
        at_once, batches, python = best_of(rounds, self.at_once, self.in_batches, self.in_python)
        unit, plain = "events/s", "plain Python"
        yield rate("replay", unit, self.events, at_once, plain, python)
        yield rate("replay in batches", unit, self.events, batches, plain, python)
        progress("states from snapshots")
        (loaded,) = best_of(rounds, self.from_snapshots)
        yield cost("states from snapshots", "s", loaded, plain, python)
        scale = 50e6 / self.events
        yield cost("50 million, extrapolated", "s", at_once * scale, plain, python * scale)

    # Ways to the balances

    def at_once(self) -> float:
        """Seconds to compute the read model over the log in one batch."""
        found: list[hr.BatchResult] = []
        app = _app(f"once-{next(_numbers)}")
        spent = seconds(
            lambda: found.append(hr.run(app, self.url, over=hr.LogRange(), spark=self.spark))
        )
        self._check(found[0].view("balances"))
        return spent

    def in_batches(self) -> float:
        """Seconds until a new read model has caught up with the log."""
        app = _app(f"batches-{next(_numbers)}")

        def work() -> None:
            with Run(app, self.url, until_caught_up=True, spark=self.spark) as run:
                run.wait()

        spent = seconds(work)
        with hr.open_views(self.url, app=app.name) as views:
            self._check(views.to_arrow("balances"))
        return spent

    def in_python(self) -> float:
        """Seconds to fold all events in Python, from the time for a part of them."""
        wanted = int(self.settings["folded_in_python"])
        states: dict[str, Account] = {}
        done = 0

        def fold(log: Log) -> None:
            nonlocal done
            columns = ["aggregate", "type", "schema", "data"]
            for batch in log.read(BANK.events.name, columns=columns):
                for row in batch.data.to_pylist():
                    key = row["aggregate"]
                    event = _by_hand(row["type"], row["schema"], row["data"])
                    states[key] = _evolve(states.get(key, ACCOUNT.initial), event)
                done += batch.data.num_rows
                if done >= wanted:
                    return

        with open_log(self.url) as log:
            spent = seconds(lambda: fold(log))
        if done == self.events:
            self._check_states({key: state.cents for key, state in states.items()})
        return spent * self.events / done

    def from_snapshots(self) -> float:
        """Seconds to load every account from its snapshot and the events after it."""
        found: dict[str, int] = {}

        def load() -> None:
            with open_log(self.url) as log, BANK.open(log) as store:
                for number in range(self.accounts):
                    loaded = store.load(ACCOUNT, f"a-{number}")
                    found[ACCOUNT.key(f"a-{number}")] = loaded.state.cents

        spent = seconds(load)
        self._check_states(found)
        return spent

    # Inside

    def fill(self) -> None:
        """Write events and snapshots, in whole columns, round by round through the accounts."""
        self.balances = np.zeros(self.accounts, np.int64)
        names = pa.array([ACCOUNT.key(f"a-{n}") for n in range(self.accounts)])
        last = self.events - TAIL * self.accounts
        with open_log(self.url) as log, BANK.open(log), log.producer(acks="written") as producer:
            for first in range(0, last, CHUNK):
                self._append(producer, names, np.arange(first, min(first + CHUNK, last)))
            states = [json.dumps({"cents": int(cents)}) for cents in self.balances]
            producer.append(
                BANK.snapshots.name,
                pa.table({
                    "aggregate": names,
                    "version": pa.array(np.full(self.accounts, last // self.accounts)),
                    "state_version": pa.array(np.ones(self.accounts, np.int32)),
                    "data": pa.array(states),
                }),
            )  # fmt: skip
            for first in range(last, self.events, CHUNK):
                numbers = np.arange(first, min(first + CHUNK, self.events))
                self._append(producer, names, numbers, tagged=True)

    def _append(
        self, producer: Any, names: pa.Array, numbers: Any, *, tagged: bool = False
    ) -> None:
        """Append events by their numbers. Only those after snapshots are found by their tags."""
        whose, cents = numbers % self.accounts, 1 + numbers * 7919 % 100_000
        kind = numbers % 3  # an older deposit, a deposit, a withdrawal
        np.add.at(self.balances, whose, np.where(kind == 2, -cents, cents))
        text = pa.array(cents).cast(pa.string())
        forms = (('{"amount":"', '"}'), ('{"cents":', ',"currency":"EUR"}'), ('{"cents":', "}"))
        data = pc.choose(
            pa.array(kind),
            *(pc.binary_join_element_wise(before, text, after, "") for before, after in forms),
        )
        keys = names.take(pa.array(whose))
        ids = pc.binary_join_element_wise("c-", pa.array(numbers).cast(pa.string()), "")
        at = int(BEGIN.timestamp()) * 1_000_000 + numbers * 1_000
        columns: dict[str, Any] = {
            "aggregate": keys,
            "version": pa.array(numbers // self.accounts + 1),
            "type": pa.array(["money-deposited", "money-withdrawn"]).take(pa.array(kind // 2)),
            "schema": pa.array(np.where(kind == 1, 2, 1).astype(np.int32)),
            "at": pa.array(at).cast(pa.timestamp("us", "UTC")),
            "id": pc.binary_join_element_wise(ids, "0", ":"),
            "command": ids,
            "data": data,
        }
        if tagged:
            tags = pc.binary_join_element_wise("aggregate", keys, ":")
            ends = pa.array(np.arange(len(tags) + 1, dtype=np.int32))
            columns["tags"] = pa.ListArray.from_arrays(ends, tags)
        producer.append(BANK.events.name, pa.table(columns))

    def _check(self, view: pa.Table) -> None:
        names, cents = view.column("aggregate").to_pylist(), view.column("cents").to_pylist()
        self._check_states(dict(zip(names, cents, strict=True)))

    def _check_states(self, found: dict[str, int]) -> None:
        wanted = {ACCOUNT.key(f"a-{n}"): int(cents) for n, cents in enumerate(self.balances)}
        assert found == wanted, "balances differ"


def _by_hand(name: str, schema: int, text: str) -> Any:
    data = json.loads(text)
    if name == "money-withdrawn":
        return Withdrawn(**data)
    if schema == 1:
        data = {"cents": int(data["amount"]), "currency": "EUR"}
    return Deposited(**data)


def _app(name: str) -> hr.App:
    app = hr.App(name)
    movements = hr.derive(
        BANK.stream(app),
        paid="CASE WHEN type = 'money-deposited' THEN cents ELSE -cents END",
    )
    balances = hr.aggregate(
        movements,
        by="aggregate",
        window=hr.running(hr.FOREVER),
        lateness=hr.Lateness(delay=timedelta(0), grace=timedelta(0)),
        cents=hr.sum("paid"),
    )
    app.view("balances", balances)
    return app
