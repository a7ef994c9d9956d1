"""Logs and applications of older versions open and continue."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from headrace.log.file.catalog import FORMAT
from headrace.log.file.tables import OLDEST
from headrace.testing import ScriptedLog, scripted_log
from tests.spark import shuffling
from tests.upgrade.application import NOW, Feed, declare, judge
from tests.upgrade.make import FOLDER, GROUP, SESSION, TILL, batch, contents

ARCHIVES = sorted(FOLDER.glob("format-*.tar.xz"))


@dataclass(frozen=True)
class Left:
    """A folder of an older version, and what a reader found in it then."""

    folder: Path
    contents: dict[str, Any]


@pytest.fixture(params=ARCHIVES, ids=lambda archive: archive.name.partition(".")[0])
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Left:
    with tarfile.open(request.param) as tar:
        tar.extractall(tmp_path, filter="data")
    put_back(tmp_path / "log")
    return Left(tmp_path / "log", json.loads((tmp_path / "contents.json").read_text()))


def put_back(log: Path) -> None:
    """Adapt absolute paths in Spark's checkpoints to this folder."""
    for file in log.glob("apps/*/checkpoints/*/state/*/_metadata/v2/[0-9]*"):
        moved = re.sub(r'(?<=")file:[^"]*?/log(?=/apps/)', f"file:{log}", file.read_text())
        file.write_text(moved)
        file.with_name(f".{file.name}.crc").unlink()


@pytest.fixture
def log(left: Left) -> Iterator[ScriptedLog]:
    with scripted_log(left.folder, start=NOW + timedelta(hours=1)) as opened:
        yield opened


def last_values(log: ScriptedLog, topic: str) -> dict[bytes, bytes | None]:
    """The last value of each key of a raw topic."""
    return {record.key: record.value for record in log.records(topic)}


def tables(catalog: Path) -> dict[str, Any]:
    """The columns of every table and index of a catalog."""
    db = apsw.Connection(str(catalog), flags=apsw.SQLITE_OPEN_READONLY)
    names = db.execute(
        "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2"
    ).fetchall()
    found = {
        f"{kind} {name}": db.execute(f"PRAGMA {kind}_xinfo('{name}')").fetchall()
        for kind, name in names
    }
    db.close()
    return found


def test_every_format_that_can_be_upgraded_has_a_fixture() -> None:
    kept = {int(path.name.removeprefix("format-").partition(".")[0]) for path in ARCHIVES}
    assert kept >= set(range(OLDEST, FORMAT)), "make it with the version that wrote that format"


def test_everything_reads_as_before(left: Left, log: ScriptedLog) -> None:
    found, before = contents(log.log), left.contents
    for topic, expected in before["topics"].items():
        for what, value in expected.items():
            assert found["topics"][topic][what] == value, f"{what} of topic {topic}"
    for what in ("groups", "views"):
        for name, value in before[what].items():
            assert found[what][name] == value, f"{what}: {name}"
    assert found == before


def test_an_upgraded_catalog_has_the_tables_of_a_new_one(
    left: Left, log: ScriptedLog, tmp_path: Path
) -> None:
    with scripted_log(tmp_path / "new"):
        new = tables(tmp_path / "new" / "catalog.db")
    assert tables(left.folder / "catalog.db") == new


def test_a_producer_goes_on_with_its_sequence(left: Left, log: ScriptedLog) -> None:
    offsets = left.contents["topics"]["rates"]["offsets"]
    with log.log.producer(id=TILL) as till:
        assert till.next_sequence == 7
        assert till.append("rates", batch(5), sequence=5).duplicate
        assert [[p.first, p.end] for p in log.log.topic("rates").partitions] == offsets
        assert not till.append("rates", batch(7), sequence=7).duplicate
        assert till.append("rates", batch(7), sequence=7).duplicate
    ends = [part.end for part in log.log.topic("rates").partitions]
    assert sum(ends) == sum(end for _, end in offsets) + 3


def test_a_group_goes_on_where_it_was_without_its_dead_member(left: Left, log: ScriptedLog) -> None:
    committed = {(topic, part): at or 0 for topic, part, at in left.contents["groups"][GROUP]}
    unread = {
        (topic, part, offset)
        for topic in ("orders", "rates")
        for part, offset, *_ in left.contents["topics"][topic]["records"]
        if offset >= committed[topic, part]
    }
    read = []
    with log.log.consumer("orders", "rates", group=GROUP, session=SESSION) as consumer:
        while len(consumer.assignment) < len(committed):
            read += consumer.poll()
            log.pass_time(SESSION / 3)
        while more := consumer.poll():
            read += more
        consumer.commit()
    assert sorted((r.topic, r.partition, r.offset) for r in read) == sorted(unread)
    assert log.log.group(GROUP).lag == 0


def test_compaction_goes_on(log: ScriptedLog) -> None:
    before = last_values(log, "rates")
    with log.log.producer() as producer:
        producer.send("rates", "new", key="k2")
    log.log.compact("rates")
    kept = [record.key for record in log.records("rates")]
    assert len(kept) == len(set(kept))
    assert last_values(log, "rates") == {**before, b"k2": b"new"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_application_goes_on_as_if_it_had_run_here_all_the_time(
    left: Left, log: ScriptedLog
) -> None:
    app = declare()
    Feed(seed=18).commits(log, 5)  # its rows are hours late
    log.run(app, spark=shuffling(2), max_commits=20)
    judge(app, log.run(app, spark=shuffling(2)))
    now = contents(log.log)["topics"]
    for topic, before in left.contents["topics"].items():
        gone = [record for record in before["records"] if record not in now[topic]["records"]]
        assert not gone, f"records of {topic} that were there before"
