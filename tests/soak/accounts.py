"""Invariants of the log and the view at any moment, and at the end."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from headrace.clock import micros
from headrace.errors import OffsetOutOfRange
from headrace.log import LATEST, Commit, Log, Record
from headrace.log.position import Position as Place
from headrace.plan.position import Position
from headrace.store import open_views
from headrace.testing import Results
from tests.property.judging import (
    check_changelog,
    check_dead,
    check_late,
    check_law,
    check_published,
    check_view,
)
from tests.soak import stage

_ATTEMPTS = 20


@dataclass
class Accounts:
    """Compares the log with the acknowledged records, and with earlier reads."""

    folder: Path
    seen: dict[str, dict[tuple[int, int], Any]] = field(default_factory=lambda: defaultdict(dict))
    counted: Counter[str] = field(default_factory=Counter)

    def check(self, log: Log) -> None:
        """Check everything while others run: no acknowledged record is lost, duplicated or torn."""
        acked = {name: self.acked(name) for name in stage.MODES}
        head = log.head()
        orders = self.read(log, stage.ORDERS, head)
        batches = self.batches(orders)
        for name, numbers in acked.items():
            missing = numbers - batches[name].keys()
            assert not missing, f"{name}: acknowledged, and not in the log: {sorted(missing)[:9]}"
        self.check_relayed(self.read(log, stage.RELAYED, head), orders)
        self.check_noise(log, acked)
        self.check_rates(log, acked)
        self.check_live_view(log, orders)
        self.counted["checks"] += 1
        self.counted["acknowledged"] = sum(map(len, acked.values()))

    def check_end(self, log: Log, results: Results) -> None:
        """Check everything after all workers have stopped."""
        self.check(log)
        orders = self.read(log, stage.ORDERS)
        relayed = self.read(log, stage.RELAYED)
        assert len(relayed) == len(orders), f"{len(orders) - len(relayed)} orders are not relayed"
        self.counted["orders"] = len(orders)
        self.counted["relayed"] = len(relayed)
        last: dict[str, str | None] = {}
        for name in [name for name, mode in stage.MODES.items() if mode == "transaction"]:
            last |= dict(stage.rate(name, n) for n in sorted(self.batches(orders)[name]))
        log.compact(stage.RATES)
        rates = [(record.key.decode(), record.value) for record in self.read(log, stage.RATES)]
        assert len(rates) == len(dict(rates)), "a key is there twice after compaction"
        assert {key: value and value.decode() for key, value in rates} == last
        _, sales = stage.declare()
        assert view_of(log) == recount(orders), "the view is not what DuckDB counts"
        check_view(stage.VIEW, sales, results)
        check_law(stage.VIEW, sales, results)
        check_late(f"{stage.APP}.{stage.VIEW}.late", sales, results)
        check_dead(stage.APP, stage.VIEW, sales, results)
        check_published(f"{stage.APP}.{stage.VIEW}", sales, results)
        check_changelog(f"{stage.APP}.{stage.VIEW}.changes", sales, results, stage.VIEW)

    def acked(self, name: str) -> set[int]:
        """The numbers of the acknowledged batches of a producer."""
        path = self.folder / f"{name}.acked"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return set(map(int, lines))

    def read(self, log: Log, topic: str, upto: int | None = None) -> list[Record]:
        """The records of a topic. An offset holds one value for ever."""
        stop: Place = LATEST if upto is None else Commit(upto)
        known = self.seen[topic]
        for _ in range(_ATTEMPTS):
            try:
                found = [r for batch in log.read(topic, stop=stop) for r in batch.records()]
                break
            except OffsetOutOfRange:
                assert topic == stage.NOISE, "only this one is cut by retention"
        else:
            raise AssertionError(f"{topic} could not be read for {_ATTEMPTS} times")
        for record in found:
            place = (record.partition, record.offset)
            value = (record.commit, record.key, record.value)
            assert known.setdefault(place, value) == value, f"{topic} has changed at {place}"
        return found

    def batches(self, orders: list[Record]) -> dict[str, Counter[int]]:
        """The rows of each batch by producer: whole, in order, and at dense offsets."""
        found: dict[str, Counter[int]] = defaultdict(Counter)
        commits: dict[tuple[str, int], set[int | None]] = defaultdict(set)
        ends: Counter[int] = Counter()
        for record in orders:
            assert record.offset == ends[record.partition], "offsets are not dense"
            ends[record.partition] += 1
            name, number, _ = record.value["id"].split("/")
            found[name][int(number)] += 1
            commits[name, int(number)].add(record.commit)
        for name, numbers in found.items():
            wrong = {number: rows for number, rows in numbers.items() if rows != stage.ROWS}
            assert not wrong, f"{name}: batches torn or doubled: {dict(list(wrong.items())[:9])}"
            assert sorted(numbers) == list(range(len(numbers))), f"{name}: a batch is missing"
        torn = [batch for batch, numbers in commits.items() if len(numbers) > 1]
        assert not torn, f"batches in several commits: {torn[:9]}"
        assert len({record.value["id"] for record in orders}) == len(orders), "an id is there twice"
        return found

    def check_relayed(self, relayed: list[Record], orders: list[Record]) -> None:
        """Check that each relayed record exists once, and was in the input."""
        ids = Counter(record.value.decode() for record in relayed)
        twice = [id for id, times in ids.items() if times > 1]
        assert not twice, f"relayed twice: {twice[:9]}"
        invented = ids.keys() - {record.value["id"] for record in orders}
        assert not invented, f"relayed, and no order: {sorted(invented)[:9]}"

    def check_noise(self, log: Log, acked: dict[str, set[int]]) -> None:
        """Check that retention deletes only the oldest records: each key has no gap."""
        by_key: dict[bytes, list[int]] = defaultdict(list)
        for record in self.read(log, stage.NOISE):
            name, number, row = json.loads(record.value)
            assert record.key == f"{name}/{row}".encode()
            by_key[record.key].append(number)
        for key, numbers in by_key.items():
            assert numbers == list(range(numbers[0], numbers[-1] + 1)), f"a gap in {key!r}"
            last = max(acked[key.decode().partition("/")[0]], default=0)
            assert numbers[-1] >= last, f"{key!r} ends with {numbers[-1]}, and {last} was acked"

    def check_rates(self, log: Log, acked: dict[str, set[int]]) -> None:
        """Check that compaction keeps the last acknowledged value of each key, or a newer one."""
        newest = {record.key: record.commit or 0 for record in self.read(log, stage.RATES)}
        known = self.seen[stage.RATES]
        for name, mode in stage.MODES.items():
            if mode == "transaction" and acked[name]:
                keys = {stage.rate(name, number)[0].encode() for number in acked[name]}
                assert keys <= newest.keys(), f"keys are gone: {keys - newest.keys()}"
        for commit, key, _ in known.values():
            assert commit <= newest[key], f"{key!r} went back"

    def check_live_view(self, log: Log, orders: list[Record]) -> None:
        """Check that the view equals DuckDB's count of the log up to the view's position."""
        for _ in range(_ATTEMPTS):
            before, rows, after = reached(log), view_of(log), reached(log)
            if before is None:
                return
            if before == after:
                upto = [r for r in orders if r.commit is not None and r.commit <= before]
                if not orders or before <= max(r.commit or 0 for r in orders):
                    assert rows == recount(upto), f"the view at commit {before} is wrong"
                    self.counted["views compared"] += 1
                return


def reached(log: Log) -> int | None:
    """The commit up to which the view has everything; None without a view."""
    with open_views(log.home, app=stage.APP) as views:
        if not views.list():
            return None
        text = views.query(f"SELECT reached FROM {stage.APP}._headrace_step").rows[0][0]
    return int(Position.from_json(json.loads(text)[stage.ORDERS]).commit)


def view_of(log: Log) -> list[tuple[Any, ...]]:
    """The rows of the view."""
    with open_views(log.home, app=stage.APP) as views:
        rows = views.rows(stage.VIEW) if views.list() else []
    return sorted((r["shop"], r["window_start"], r["orders"], r["revenue"]) for r in rows)


def recount(orders: list[Record]) -> list[tuple[Any, ...]]:
    """The same by DuckDB, which has only the rows and the rule, not headrace."""
    wait = micros(stage.LATENESS.delay + stage.LATENESS.grace)
    size = micros(stage.SIZE)
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute(
            "CREATE TABLE r (number BIGINT, arrived TIMESTAMPTZ, shop TEXT, price DECIMAL(10,2), "
            "moment TIMESTAMPTZ)"
        )
        rows = [
            (r.commit, r.timestamp, r.value["shop"], r.value["price"], r.value["at"])
            for r in orders
        ]
        if rows:
            db.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?)", rows)
        counted = db.execute(
            f"""
            WITH alive AS (
                SELECT *, epoch_us(moment) AS us, epoch_us(moment) // {size} * {size} AS start
                FROM r WHERE moment <= arrived + INTERVAL 1 HOUR),
            commits AS (SELECT number, max(us) AS newest FROM alive GROUP BY number),
            frontiers AS (
                SELECT number, max(newest) OVER (
                    ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS frontier
                FROM commits)
            SELECT shop, strftime(make_timestamp(start), '%Y-%m-%d %H:%M:%S') AS w,
                count(*), CAST(sum(price) AS TEXT)
            FROM alive JOIN frontiers USING (number)
            WHERE frontier IS NULL OR start + {size} + {wait} > frontier
            GROUP BY ALL ORDER BY ALL
            """
        ).fetchall()
    return sorted(counted)
