"""Unmatched rows of an outer join are emitted once nothing can match them, and no sooner."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.operators.stream_join.declare import JOINED_AT
from headrace.operators.stream_join.spark import KIND, LEFT, LEFT_ROW, PAIR, RIGHT, RIGHT_ROW
from headrace.operators.stream_join.state import JoinKeeper
from headrace.plan import arrow_files
from headrace.plan.batch import Rows, Shapes, StepBatch
from headrace.plan.crash_points import nothing
from headrace.plan.law import Law
from headrace.plan.position import position_at
from headrace.plan.staging import Staged
from headrace.plan.steps import steps_of
from headrace.store.keeper import Passage, Stored
from headrace.store.sqlite.database import Database
from headrace.testing import ScriptedLog, scripted_log

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)
ROWS = pa.schema([("ad", pa.int32()), (JOINED_AT, pa.timestamp("us", tz="UTC"))])
STAGED = pa.schema([(KIND, pa.int32()), (LEFT_ROW, pa.string()), (RIGHT_ROW, pa.string()), *ROWS])

app = hr.App("ads")
SCHEMA = "ad int, at timestamp"
shown, clicks, taps = (
    app.topic(name, schema=SCHEMA, event_time="at") for name in ("shown", "clicks", "taps")
)
right = hr.merge(clicks, taps)
app.publish(
    "pairs", hr.join(shown, right, on="ad", after=MINUTE, delay=MINUTE, prefix="r_", how="full")
)
(STEP,) = steps_of(app)


class Keeping:
    """A log, and the database of a join."""

    def __init__(self, log: ScriptedLog, folder: Path) -> None:
        self.log = log
        self._folder = folder
        self._database = Database(folder / "ads.db", "ads")
        self._keeper = JoinKeeper(Stored(STEP, Shapes(ROWS, None), log.log, None, nothing))
        with self._database.writing() as db:
            self._keeper.create(db)

    def store(self, *rows: tuple[int, str | None, str | None, int]) -> list[Any]:
        """Store pairs and rows, each by kind, positions and number; returns the emitted rows."""
        made = [dict(zip(STAGED.names, (*row, NOON), strict=True)) for row in rows]
        columns = pa.RecordBatch.from_pylist(made, schema=STAGED)
        path = arrow_files.write(self._folder, [columns])
        staged = Staged(self._folder, () if path is None else (path,), STAGED)
        head = self.log.log.head()
        end = {name: position_at(self.log.log, name, head) for name in ("shown", "clicks", "taps")}
        batch = StepBatch(end, end, None, None, None, Law(), Rows(staged), taken=len(rows))
        with self._database.writing() as db:
            self._keeper.store(db, batch, Passage(None, None))
            sent = [bytes(data) for (data,) in db.execute("SELECT data FROM _headrace_outbox")]
            db.execute("DELETE FROM _headrace_outbox")
        tables = (pa.ipc.open_stream(data).read_all() for data in sent)
        return [number for table in tables for number in table.column("ad").to_pylist()]

    def close(self) -> None:
        self._database.close()


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Keeping]:
    with scripted_log(start=NOON) as log:
        for topic in app.topics.values():
            log.log.ensure_topic(topic)
        made = Keeping(log, tmp_path)
        yield made
        made.close()


def test_a_row_is_without_another_once_all_topics_of_the_other_side_are_past_it(
    keeping: Keeping,
) -> None:
    known = NOON + MINUTE  # the delay
    keeping.log.write(shown, {"ad": 0, "at": NOON})
    keeping.log.write(clicks, {"ad": 0, "at": known})
    assert keeping.store((LEFT, "x", None, 1)) == [], "nothing is known of the other topic"
    keeping.log.write(taps, {"ad": 0, "at": known - TICK})
    assert keeping.store() == []
    keeping.log.write(clicks, {"ad": 0, "at": known + MINUTE})
    assert keeping.store() == [], "one of the two topics is not so far"
    keeping.log.write(taps, {"ad": 0, "at": known})
    assert keeping.store() == [1]
    assert keeping.store() == []


def test_a_row_that_has_matched_is_not_told_again_and_the_other_side_is_apart(
    keeping: Keeping,
) -> None:
    assert keeping.store((LEFT, "x", None, 1), (LEFT, "y", None, 2)) == []
    assert keeping.store((RIGHT, None, "y", 3), (RIGHT, None, "z", 4)) == []
    assert keeping.store((PAIR, "x", "z", 5)) == [5]
    for topic in (shown, clicks, taps):
        keeping.log.write(topic, {"ad": 0, "at": NOON + MINUTE})
    assert keeping.store() == [2, 3]
