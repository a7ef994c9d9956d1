"""Any version of headrace can read the record of a step that another one wrote."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from headrace.application.doctor.records import Records
from headrace.plan.batch import Timing
from headrace.plan.law import Law
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.sink import Timings


def timing(batch: int) -> Timing:
    return Timing(batch, 10, 5, 10, 500, 20, 30, 40, 7, 700)


def entered(folder: Path) -> Database:
    """A database from before timings were stored, with a step."""
    database = Database(folder / "views" / "shop.db", "shop")
    law = json.dumps(asdict(Law(rows=3, pairs=3, counted=3)))
    place = json.dumps({"orders": {"commit": 4, "offsets": {"0": 3}}})
    with database.writing() as db:
        db.execute(
            "INSERT INTO _headrace_step VALUES ('sales', 'f', '{}', ?, ?, 12, ?, 0)",
            (place, place, law),
        )
        db.execute(
            "INSERT INTO _headrace_law (step, reached, law) VALUES ('sales', ?, ?)", (place, law)
        )
    return database


def test_an_application_that_has_never_run_has_no_record(tmp_path: Path) -> None:
    with Records(f"file:{tmp_path}", "shop") as records:
        assert records.of("sales") is None
    assert not list(tmp_path.iterdir())


def test_a_database_from_before_there_were_timings_is_read_without(tmp_path: Path) -> None:
    database = entered(tmp_path)
    with Records(f"file:{tmp_path}", "shop") as records:
        record = records.of("sales")
        assert record is not None
        assert record.timings == ()
        assert record.law.counted == 3
        assert record.frontier == 12
        assert record.laws[0].commits == {"orders": 4}
    database.close()


def test_timings_are_added_to_an_older_database(tmp_path: Path) -> None:
    database = entered(tmp_path)
    timings, other = Timings(database, "sales"), Timings(database, "more")
    timings.note(timing(0), last=False)
    other.note(timing(7), last=True)
    with Records(f"file:{tmp_path}", "shop") as records:
        record = records.of("sales")
        assert record is not None
        assert record.timings == ()  # it waits for the next transaction
        with database.writing() as db:
            timings.write(db)
        timings.note(timing(1), last=True)
        record = records.of("sales")
        assert record is not None
        assert record.timings == (timing(0), timing(1))
    database.close()


def test_only_the_last_timings_of_a_step_are_kept(tmp_path: Path) -> None:
    database = entered(tmp_path)
    timings, other = Timings(database, "sales"), Timings(database, "more")
    other.note(timing(7), last=True)
    for batch in range(250):
        timings.note(timing(batch), last=False)
        if batch % 50 == 49:
            with database.writing() as db:
                timings.write(db)
    with database.reading() as db:
        kept = list(db.execute("SELECT step, count(*) FROM _headrace_timing GROUP BY step"))
    assert sorted(kept) == [("more", 1), ("sales", 200)]
    with Records(f"file:{tmp_path}", "shop") as records:
        record = records.of("sales")
        assert record is not None
        assert record.timings[-1] == timing(249)
        assert record.timings[0] == timing(50)
    database.close()
