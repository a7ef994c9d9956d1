"""A catalog of an older headrace is upgraded to the current format."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from headrace.clock import VirtualClock
from headrace.log.file.catalog import APPLICATION, FILE_NAME, FORMAT
from headrace.log.file.log import FileLog
from headrace.log.file.tables import MARKS, QUEUES, SCHEMA, TAILS, upgrade

FORMAT_2 = (Path(__file__).parent / "format_2.sql").read_text()


def tables(db: apsw.Connection) -> dict[str, object]:
    """The columns of all tables and indexes."""
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema ORDER BY name")]
    return {
        name: [
            *db.execute(f"PRAGMA table_xinfo({name})"),
            *db.execute(f"PRAGMA index_xinfo({name})"),
        ]
        for name in names
    }


def test_an_upgraded_catalog_has_the_tables_of_a_new_one() -> None:
    old, new = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    old.execute(FORMAT_2)
    upgrade(old, 2)
    new.execute(SCHEMA + MARKS + QUEUES + TAILS)
    assert tables(old) == tables(new)


@pytest.fixture
def format_2(tmp_path: Path) -> Path:
    """A log of format 2 with a topic, and an expired member of a group."""
    folder = tmp_path / "log"
    folder.mkdir()
    db = apsw.Connection(str(folder / FILE_NAME))
    db.execute("PRAGMA journal_mode=WAL")
    db.execute(f"PRAGMA application_id={APPLICATION}")
    db.execute(FORMAT_2)
    db.execute(
        "INSERT INTO setting VALUES ('boot', ''), ('log_id', 'x'); INSERT INTO head VALUES (0, 0); "
        "INSERT INTO topic (name, settings) VALUES ('t', '{}'); "
        "INSERT INTO partition (topic, partition) VALUES (1, 0); "
        "INSERT INTO consumer_group (name, assignor) VALUES ('g', 'sticky'); "
        "INSERT INTO member VALUES ('m', 1, NULL, '[\"t\"]', 10000000, 1700000000000000); "
        "INSERT INTO claim VALUES (1, 1, 0, 'm', 'm'); PRAGMA user_version=2"
    )
    db.close()
    return folder


def test_a_log_of_format_2_opens_and_goes_on(format_2: Path) -> None:
    clock = VirtualClock(1_700_000_001_000_000)
    with FileLog(format_2, clock=clock) as log:
        with log.producer() as producer:
            producer.send("t", "new").wait()
        with log.consumer("t", group="g") as consumer:
            assert [record.value for record in consumer.poll()] == [b"new"]
    db = apsw.Connection(str(format_2 / FILE_NAME), flags=apsw.SQLITE_OPEN_READONLY)
    assert db.execute("PRAGMA user_version").get == FORMAT
    db.close()
