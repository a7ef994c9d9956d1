"""For any workload, snapshots and crashes, the topics of a capture fold to the tables."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cdc import Capture, Limits
from headrace.cdc.capture import POINTS, CrashPoint
from headrace.errors import SourceGap
from headrace.log import Log, open_log
from headrace.log.home import folder_of
from tests.conformance.sources.stage import Crashed, crash_at
from tests.property.scripted_source import NAMES, ScriptedDatabase, ScriptedSource
from tests.property.scripts import quickly

MEMORY = "/dev/shm"
"""Every commit of a log waits for its disk, where there is no such folder."""

ACTIONS = (
    "write", "write", "step", "step", "crash", "again", "lose copy", "lose page", "lose changes",
)  # fmt: skip


class Run:
    """A capture of a database, and all that happens to it."""

    def __init__(self, log: Log, random: Random) -> None:
        self.log = log
        self.random = random
        self.database = ScriptedDatabase()
        self.seen: Counter[str] = Counter()
        self._capture: Capture | None = None

    def do(self, action: str) -> None:
        self.seen[action] += 1
        if action == "write":
            self.database.commit(self.random, self.random.choice([1, 2, 5, 9]))
        elif action == "crash":
            self.step(crash_at(self.random.choice(POINTS), self.random.randrange(1, 3)))
        elif action == "step":
            self.step()
        elif action == "again":
            self.capture().snapshot(f"public.{self.random.choice(NAMES)}")
        elif action == "lose copy":
            self.end()
            for file in (folder_of(self.log.home) / "cdc").glob("*"):
                file.unlink()
        elif action == "lose page":
            self.end()
            for file in sorted((folder_of(self.log.home) / "cdc").glob("*.page"))[:1]:
                self.seen["page"] += 1
                file.unlink()
        else:
            self.database.commit(self.random, 3)
            self.database.lose()
            self.end()

    def capture(self, crash_point: CrashPoint = lambda point: None) -> Capture:
        if self._capture is None:
            try:
                self._capture = self._made(crash_point, heal=False)
            except SourceGap:
                self.seen["gap"] += 1
                self._capture = self._made(crash_point, heal=True)
        return self._capture

    def _made(self, crash_point: CrashPoint, *, heal: bool) -> Capture:
        return Capture(
            ScriptedSource(self.database, self.random),
            self.log,
            "p",
            heal=heal,
            limits=Limits(changes=4, chunk_rows=2),
            crash_point=crash_point,
        )

    def step(self, crash_point: CrashPoint | None = None) -> None:
        if crash_point is not None:
            self.end()
        try:
            capture = self.capture(crash_point or (lambda point: None))
            capture.step(0)
            if not capture._snapshots.running and capture.reached.tx is None:
                self.seen["compared"] += 1
                self.check(int(capture.reached.position or 0))
        except Crashed:
            self.seen["crashed"] += 1
            self.end()
        else:
            if crash_point is not None:
                self.end()

    def finish(self) -> None:
        """Run until everything is in the log."""
        for _ in range(500):
            self.step()
            if self.capture().has_passed(str(len(self.database.full))):
                break
        else:
            raise AssertionError("it never caught up")
        self.check(len(self.database.full))
        self.end()

    def end(self) -> None:
        if self._capture is not None:
            self._capture.close()
            self._capture = None

    def check(self, position: int) -> None:
        """The topics fold to the tables at a position, and divide no transaction."""
        commits: dict[str, set[int | None]] = {}
        places: Counter[Any] = Counter()
        for name, rows in self.database.at(position).items():
            found: dict[str, Any] = {}
            for batch in self.log.read(f"p.public.{name}"):
                for record in batch.records():
                    if record.value is None:
                        assert record.key not in found
                        continue
                    change, source = record.value, record.value["source"]
                    assert change["before"] in (found.get(record.key), None) or (
                        record.key not in found
                    )
                    found[record.key] = change["after"]
                    if change["after"] is None:
                        del found[record.key]
                    if source["tx"] is not None:
                        places[source["tx"], source["order"], record.key] += 1
                        if source["part"] is None:
                            commits.setdefault(source["tx"], set()).add(record.commit)
            now = {f'{{"id":{key}}}': row for key, row in rows.items()}
            assert {key: tuple(row.values()) for key, row in found.items()} == now
        assert all(len(numbers) == 1 for numbers in commits.values())
        assert set(places.values()) <= {1}


def explore(examples: int, *, fresh: bool = False) -> Counter[str]:
    seen: Counter[str] = Counter()

    @quickly(examples, fresh=fresh)
    @given(
        st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=40),
        st.randoms(use_true_random=False),
    )
    def check(actions: list[str], random: Random) -> None:
        memory = MEMORY if Path(MEMORY).is_dir() else None
        with (
            tempfile.TemporaryDirectory(dir=memory) as folder,
            open_log(f"file:{folder}/log") as log,
        ):
            run = Run(log, random)
            for action in actions:
                run.do(action)
            run.finish()
            seen.update(run.seen)

    check()
    return seen


def test_topics_fold_to_their_tables_whatever_happens() -> None:
    explore(20)


@pytest.mark.slow
def test_topics_fold_to_their_tables_in_many_more_examples() -> None:
    seen = explore(400, fresh=True)
    assert all(seen[name] for name in (*ACTIONS, "crashed", "gap", "compared", "page"))
