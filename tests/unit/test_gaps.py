"""A step continues only in the topic and the history of the log that it has read before."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from headrace.application.doctor import examine
from headrace.application.preflight import preflight
from headrace.application.rebuild.building import limits_of, make_room
from headrace.clock import VirtualClock
from headrace.errors import PipelineError, UnknownTopic
from headrace.log.file.log import FileLog
from headrace.log.roles import Acks
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.gaps import Gaps, check_known
from headrace.plan.position import Position, lags_of, position_at, positions_from_json
from headrace.plan.source_options import SourceOptions
from headrace.runtime.data_source import StreamReader
from headrace.store.location import build_place, database_of
from headrace.store.sqlite.stored import steps_in
from headrace.testing import Results
from tests.property.driver import Machine
from tests.property.judging import check_view
from tests.property.scripts import NOW, SECOND
from tests.property.sinking import sink_all
from tests.property.test_publishing import TYPES, declare

MADE_AGAIN = "was deleted and created again"
TAKEN_BACK = "on are gone: they were not synced"


class Home:
    """A log on a machine that can reboot, and an application that counts its rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app, self.counts, self.step = declare("tumbling")
        self.boots = 1
        self.open()
        self.make()

    def open(self) -> None:
        disk = Machine(self.boots)
        self.log = FileLog(self.folder, clock=VirtualClock(NOW), disk=disk)

    def boot(self) -> None:
        """Reboot after the machine went down."""
        self.log.close()
        self.boots += 1
        self.open()

    def make(self) -> None:
        self.log.ensure_topic(self.app.topics["events"])

    def make_again(self, rows: int, partitions: int = 1) -> None:
        self.log.delete_topic("events")
        declared = self.app.topics["events"]
        self.log.create_topic(
            "events", partitions=partitions, schema=declared.schema, event_time="at"
        )
        self.write(rows)

    def write(self, rows: int, acks: Acks = "synced") -> None:
        """Write rows, ten per commit."""
        with self.log.producer(acks=acks) as producer:
            for start in range(0, rows, 10):
                with producer.transaction() as transaction:
                    for n in range(start, min(rows, start + 10)):
                        row = {"k": "a", "n": n, "tags": None, "at": NOW - n * SECOND / 10}
                        transaction.send("events", row)

    def run(self, crash_point: CrashPoint = nothing) -> Results:
        return sink_all(self.log, self.step, TYPES, max_commits=3, crash_point=crash_point)

    def counted(self) -> int:
        """The number of counted rows, after checking the view."""
        results = self.run()
        check_view("counts", self.counts, results)
        return results.law("counts").counted

    @property
    def database(self) -> Path:
        return database_of(self.log.url, "told")

    @property
    def reached(self) -> Position:
        return steps_in(self.database)["counts"].reached["events"]

    def store(self, place: dict[str, Any]) -> None:
        """Store another position for the step, by hand."""
        with apsw.Connection(str(self.database)) as db:
            sql = "UPDATE _headrace_step SET reached = ?"
            db.execute(sql, (json.dumps({"events": place}),))

    def forget_ids(self) -> dict[str, Any]:
        """Store the step's position as before topics had ids."""
        place = {k: v for k, v in self.reached.to_json().items() if k in ("commit", "offsets")}
        self.store(place)
        return place

    def synced(self) -> int:
        """The last commit that the catalog records as synced."""
        with contextlib.closing(apsw.Connection(str(self.folder / "catalog.db"))) as db:
            return int(db.execute("SELECT synced FROM head").get)

    def refused(self, says: str) -> None:
        """Check that a run stops before it stores, and that preflight and doctor say so."""
        before = self.reached
        with pytest.raises(PipelineError, match=says) as caught:
            self.run()
        assert "--fresh" in caught.value.hint
        assert self.reached == before
        with pytest.raises(PipelineError, match=says):
            preflight(self.app, self.log).require()
        finding = examine(self.app, self.log).finding("lost place")
        assert finding is not None
        assert finding.what == caught.value.message


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "log")
    yield made
    made.log.close()


# Another topic under the same name


@pytest.mark.parametrize("rows", [150, 100, 60, 0], ids=lambda rows: f"with {rows} rows")
def test_a_step_stops_where_its_topic_was_made_again(home: Home, rows: int) -> None:
    home.write(100)
    assert home.counted() == 100
    home.make_again(rows)
    home.refused(MADE_AGAIN)
    assert lags_of(home.log, {"events": home.reached}) == {"events": (rows,)}


def test_a_step_stops_where_its_topic_was_made_again_with_other_partitions(home: Home) -> None:
    home.write(100)
    home.run()
    home.make_again(150, partitions=4)
    home.refused(MADE_AGAIN)


def _after_first(act: Callable[[], None]) -> CrashPoint:
    """A crash point that calls a function when the first batch of a run has been stored."""
    stored = 0

    def crash_point(point: str) -> None:
        nonlocal stored
        stored += point == "committed"
        if point == "committed" and stored == 1:
            act()

    return crash_point


def test_a_step_stops_where_its_topic_was_made_again_under_it(home: Home) -> None:
    home.write(100)
    with pytest.raises(PipelineError, match=MADE_AGAIN):
        home.run(_after_first(lambda: home.make_again(150)))
    assert home.reached.offsets == (30,)
    home.refused(MADE_AGAIN)


def test_a_step_stops_where_its_topic_was_deleted_under_it(home: Home) -> None:
    home.write(100)
    home.run()
    home.log.delete_topic("events")
    finding = examine(home.app, home.log).finding("lost place")
    assert finding is not None
    assert "topic 'events' was deleted" in finding.what
    with pytest.raises(PipelineError, match="topic 'events' was deleted"):
        preflight(home.app, home.log).require()


def test_a_step_stops_where_the_log_is_another_one(home: Home) -> None:
    home.write(100)
    home.run()
    home.log.close()
    for name in ("catalog.db", "high-water", "segments"):
        path = home.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    home.open()
    home.make()
    home.write(150)
    home.refused(MADE_AGAIN)


def test_adding_partitions_and_altering_a_topic_leave_it_the_same(home: Home) -> None:
    home.write(100)
    home.run()
    home.log.alter_topic("events", partitions=3, settings={"retention": "7d"})
    home.write(50)
    assert home.counted() == 150


def test_a_build_is_begun_anew_where_its_topic_was_made_again(home: Home) -> None:
    place = build_place(home.log.url, "told", "counts")
    home.write(100)
    home.run()
    place.database.parent.mkdir(parents=True)
    shutil.copy(home.database, place.database)
    limits = limits_of(home.step, None, home.log.head())
    make_room(home.log, place, home.step, limits)
    assert place.database.exists()
    home.make_again(150)
    make_room(home.log, place, home.step, limits)
    assert not place.database.exists()


def test_the_ids_of_the_topics_of_a_broker_are_kept_and_compared(
    home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "topics.json"
    path.write_text('{"other": 7}')
    for _ in range(2):
        check_known(home.log, path, [home.step])
        ids = home.log.topic_ids(["events"])
        assert json.loads(path.read_text()) == {"other": 7, **ids}
    home.make_again(10)
    with pytest.raises(PipelineError, match=MADE_AGAIN):
        check_known(home.log, path, [home.step])


def test_rows_that_are_gone_are_missed_unless_they_were_read(home: Home) -> None:
    home.write(100)
    with apsw.Connection(str(home.folder / "catalog.db")) as db:
        db.execute("UPDATE partition SET first = 50")
    gaps = Gaps(home.log, "counts", ["events"])
    assert gaps.found({"events": Position(5, (50,))}) is None
    missing = gaps.found({"events": Position(5, (49,))})
    assert missing is not None
    assert (missing.details["first"], missing.details["end"]) == (49, 50)


def test_a_frontier_that_the_log_has_forgotten_stays_where_it_was(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write(10)
    home.run()
    before = steps_in(home.database)["counts"].frontier
    assert before is not None
    home.write(10)
    monkeypatch.setattr(FileLog, "frontier", lambda *_: None)
    home.run()
    assert home.reached.offsets == (20,)
    assert steps_in(home.database)["counts"].frontier == before


# Another history of the log


def _lose_bytes(home: Home) -> None:
    """Truncate the newest segment, so that the catalog refers to lost bytes."""
    newest = max(home.folder.glob("segments/000001-*.arrows"))
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size * 3 // 4)


def _without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow results of commits that a power cut can roll back."""
    monkeypatch.setattr(FileLog, "sync", lambda *_: None)
    monkeypatch.setattr("headrace.store.outbox.Outbox.send", lambda *_: None)


def test_a_step_stops_where_what_it_has_read_was_taken_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_sync(monkeypatch)
    home.write(10)
    home.run(_after_first(lambda: home.write(100, acks="written")))
    assert home.reached.offsets == (110,)
    _lose_bytes(home)
    home.boot()
    ((_, first),) = home.log.rollbacks().items()
    assert 1 < first <= 10
    home.write(150)
    home.refused(TAKEN_BACK)
    kept = position_at(home.log, "events", first - 1).offsets[0]
    assert lags_of(home.log, {"events": home.reached}) == {"events": (150,)}
    assert home.log.topic("events").records == kept + 150


def _older(home: Home, copy: Path) -> None:
    """Restore an older copy of the log, and keep the views."""
    home.log.close()
    for name in ("catalog.db", "high-water", "segments"):
        path = home.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        (shutil.copytree if path.name == "segments" else shutil.copy)(copy / name, path)


@pytest.mark.parametrize("rows", [60, 150])
def test_a_step_stops_where_the_catalog_has_lost_what_it_has_read(
    home: Home, tmp_path: Path, rows: int
) -> None:
    home.write(30)
    home.log.close()
    shutil.copytree(home.folder, tmp_path / "copy")
    home.open()
    home.write(70, acks="written")
    home.run()
    _older(home, tmp_path / "copy")
    home.boots += 1
    home.open()
    home.write(rows)
    home.refused(TAKEN_BACK)
    assert lags_of(home.log, {"events": home.reached}) == {"events": (rows,)}


def test_a_step_stops_where_an_older_copy_of_the_log_was_restored(
    home: Home, tmp_path: Path
) -> None:
    home.write(30)
    home.log.close()
    shutil.copytree(home.folder, tmp_path / "copy")
    home.open()
    home.write(70)
    home.run()
    _older(home, tmp_path / "copy")
    home.open()
    home.refused(TAKEN_BACK)


def test_a_step_goes_on_over_a_boot_that_took_nothing_back(home: Home) -> None:
    for boot in range(5):
        home.write(20)
        assert home.counted() == 20 * (boot + 1)
        home.boot()
    home.write(20, acks="written")
    home.boot()
    assert home.counted() == 120


def test_the_last_commit_that_was_read_may_be_the_one_before_a_rollback(home: Home) -> None:
    home.write(100)
    home.run()
    read = home.reached.commit
    for epoch, first in enumerate((read + 2, read + 1), start=1):
        with apsw.Connection(str(home.folder / "catalog.db")) as db:
            db.execute("INSERT INTO rollback VALUES (?, ?)", (epoch, first))
        assert home.counted() == 100
    with apsw.Connection(str(home.folder / "catalog.db")) as db:
        db.execute("INSERT INTO rollback VALUES (3, ?)", (read,))
    home.refused(TAKEN_BACK)


def test_histories_that_a_later_rollback_includes_are_forgotten(home: Home) -> None:
    for _ in range(5):
        home.boot()
    assert home.log.rollbacks() == {5: 1}
    home.write(10)
    home.boot()
    assert home.log.rollbacks() == {5: 1, 6: 2}


def test_commits_are_synced_before_results_of_them_are_stored(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its outputs are synced, and everything before them too.
    monkeypatch.setattr("headrace.store.outbox.Outbox.send", lambda *_: None)
    seen = []

    def crash_point(point: str) -> None:
        if point == "stored outputs":
            seen.append(home.synced())
        if point == "committed" and len(seen) == 1:
            home.write(10, acks="written")

    home.write(10, acks="written")
    home.run(crash_point)
    assert seen == [1, home.reached.commit]


def test_syncing_what_is_synced_writes_nothing(home: Home) -> None:
    home.write(20)
    before = home.log._catalog.changes(), (home.folder / "catalog.db-wal").stat().st_mtime_ns
    home.log.sync(home.log.head())
    assert before == (
        home.log._catalog.changes(), (home.folder / "catalog.db-wal").stat().st_mtime_ns
    )  # fmt: skip


def test_a_commit_without_rows_is_synced_as_others_are(home: Home) -> None:
    home.write(20)
    number = home.log.advance("events", NOW + timedelta(minutes=1))
    assert number is not None
    home.log.sync(number)
    assert home.synced() == number


# Positions stored before topics had ids


def test_a_place_without_an_id_is_taken_for_one_in_the_topic_of_now(home: Home) -> None:
    home.write(100)
    home.run()
    home.forget_ids()
    assert preflight(home.app, home.log).ok
    home.write(50)
    home.boot()
    assert home.counted() == 150
    home.forget_ids()
    home.run()  # with nothing to do
    assert home.reached.id == home.log.topic_ids(["events"])["events"]
    home.make_again(200)
    home.refused(MADE_AGAIN)


Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda place: place | {"offsets": {"0": 101}}, "which now ends at 100"),
        (lambda place: place | {"offsets": {"0": 50, "1": 50}}, MADE_AGAIN),
        (lambda place: place | {"commit": 100_000}, TAKEN_BACK),
    ],
    ids=["offsets past the end", "more partitions", "commits past the head"],
)
def test_a_place_without_an_id_that_cannot_be_in_the_topic_is_refused(
    home: Home, change: Change, says: str
) -> None:
    home.write(100)
    home.run()
    home.store(change(home.forget_ids()))
    home.refused(says)


def test_a_position_is_the_same_whatever_history_it_was_made_in() -> None:
    text = '{"t": {"commit": 3, "offsets": {"0": 7}, "id": 5, "epoch": 2}}'
    (place,) = positions_from_json(text).values()
    assert (place.id, place.epoch) == (5, 2)
    assert place == Position(3, (7,))
    assert place.to_json() == json.loads(text)["t"]


# Spark streams written by hand


def _reader(home: Home) -> StreamReader:
    return StreamReader(SourceOptions(home.log.url, "events"))


def test_a_stream_by_hand_stops_where_its_topic_was_made_again(home: Home) -> None:
    home.write(100)
    reader, limit = _reader(home), ReadMaxRows(1_000)
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    home.make_again(150)
    for again in (reader, _reader(home)):
        with pytest.raises(PipelineError, match=MADE_AGAIN) as caught:
            again.latestOffset(end, limit)
        assert "checkpoint" in caught.value.hint
        with pytest.raises(PipelineError, match=MADE_AGAIN):
            again.partitions(start, end)


def test_a_stream_by_hand_goes_on_from_a_place_without_an_id(home: Home) -> None:
    home.write(100)
    reader, limit = _reader(home), ReadMaxRows(1_000)
    old = {"topic": "events", "commit": 3, "offsets": {"0": 30}}
    end = reader.latestOffset(old, limit)
    assert end["offsets"] == {"0": 100}
    assert end["id"] == home.log.topic_ids(["events"])["events"]
    assert sum(span.end - span.start for span in reader.partitions(old, end)) == 70


def test_a_stream_by_hand_has_commits_synced_before_it_hands_them_out(home: Home) -> None:
    reader = _reader(home)
    start = reader.initialOffset()  # this opens the log, as after a reboot
    home.write(100, acks="written")
    assert home.synced() == 0
    end = reader.latestOffset(start, ReadMaxRows(1_000))
    assert home.synced() == end["commit"] == 10


# Consumers


def test_a_consumer_says_so_when_its_topic_is_made_again_under_it(home: Home) -> None:
    home.write(20)
    with home.log.consumer("events") as consumer:
        assert len(consumer.poll(max_records=10)) == 10
        home.make_again(30)
        with pytest.raises(UnknownTopic):
            for _ in range(3):  # it may still have some of the rows that it knows of
                assert all(record.value["n"] < 20 for record in consumer.poll())
