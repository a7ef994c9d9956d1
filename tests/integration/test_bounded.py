"""`hr.run(app, over=...)`: files and ranges of the log, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.backfill import reading
from headrace.errors import InvalidRecord, InvalidSetting, Unsupported
from headrace.testing import Results, scripted_log
from tests import spark
from tests.property.test_bounded import check_equal
from tests.recovery.backfilling import load

SECOND = timedelta(seconds=1)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def declare(partitions: int = 1) -> tuple[hr.App, Any]:
    app = hr.App("hits")
    views = app.topic(
        "views", schema="url string, at timestamp", key="url", event_time="at",
        partitions=partitions,
    )  # fmt: skip
    counts = hr.aggregate(
        views,
        by="url",
        window=hr.tumbling(60 * SECOND),
        lateness=hr.Lateness(delay=10 * SECOND, grace=30 * SECOND),
        hits=hr.count(),
        newest=hr.max("at"),
    )
    app.view("hits", counts)
    app.publish("hits.late", counts.late)
    return app, views


def history(folder: Path) -> Path:
    """Files of all formats, whose rows are out of order, late, dead and within grace."""
    folder.mkdir()
    at = [NOON + n * 7 % 400 * SECOND for n in range(60)]
    table = pa.table({"url": [f"/{n % 3}" for n in range(60)], "at": [*at[:-1], None]})
    pq.write_table(table.slice(0, 25), folder / "a.parquet")
    pa_csv.write_csv(table.slice(25, 15), folder / "b.csv")
    lines = [{"url": r["url"], "at": r["at"] and r["at"].isoformat()} for r in table.to_pylist()]
    (folder / "c.jsonl").write_text(
        "".join(f"{line}\n".replace("'", '"').replace("None", "null") for line in lines[40:])
    )
    return folder


def test_files_are_computed_as_if_they_had_been_loaded_into_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK_ROWS", 6)
    app, _ = declare(partitions=2)
    files = str(history(tmp_path / "history"))
    with hr.open_log(f"file:{tmp_path / 'log'}") as log:
        log.ensure_topic(app.topics["views"])
        load(log, "views", files)
        progress = hr.run(app, log, spark=spark.shared())
        batch = hr.run(app, over=files, spark=spark.shared())
        check_equal(app, batch, Results(log, app.name, tuple(progress)))
    law = batch.laws["hits"]
    assert (law.rows, law.dead) == (60, 1)
    assert law.late > 0
    assert law.counted == sum(batch.view("hits").column("hits").to_pylist())


def test_a_range_has_its_own_rows_and_the_late_rows_of_the_whole_log() -> None:
    app, views = declare()
    with scripted_log(start=NOON) as log:
        log.write(views, {"url": "/", "at": NOON})
        first = log.write(views, {"url": "/", "at": NOON + 300 * SECOND}, at=NOON + 301 * SECOND)
        log.write(views, {"url": "/", "at": NOON + SECOND}, {"url": "/", "at": NOON + 301 * SECOND})
        last = log.write(views, {"url": "/", "at": NOON + 302 * SECOND})
        log.write(views, {"url": "/", "at": NOON + 303 * SECOND})
        found = hr.run(app, log.log, over=hr.LogRange(first, last), spark=spark.shared())
        assert found.view("hits").column("hits").to_pylist() == [2]
        (late,) = found.late("hits").to_pylist()
        assert (late["at"], late["watermark"]) == (NOON + SECOND, NOON + 290 * SECOND)
        nothing = hr.run(app, log.log, over=hr.LogRange(last, last), spark=spark.shared())
        assert nothing.view("hits").num_rows == nothing.laws["hits"].rows == 0
        assert [topic.name for topic in log.log.topics()] == ["views"]


def test_a_bad_row_of_a_file_is_named(tmp_path: Path) -> None:
    app, _ = declare()
    (tmp_path / "a.csv").write_text("url,at\n/,later\n")
    with pytest.raises(InvalidRecord, match=r"a\.csv, row 2: Column 'at'"):
        hr.run(app, over=tmp_path / "a.csv")


def test_every_topic_needs_its_files() -> None:
    app, views = declare()
    other = app.topic("other", schema="url string, at timestamp", event_time="at")
    app.publish("both", hr.merge(views, other))
    with pytest.raises(InvalidSetting, match="reads 2 topics, so each needs its files") as caught:
        hr.run(app, over="*.csv")
    assert caught.value.hint == "Write over={'views': ..., 'other': ...}"
    with pytest.raises(InvalidSetting, match="no files for topic 'other'"):
        hr.run(app, over={"views": "*.csv"})
    with pytest.raises(InvalidSetting, match="reads no topic 'view'"):
        hr.run(app, over={"view": "*.csv"})


def keep(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Never called."""
    raise AssertionError


def test_what_a_batch_cannot_compute_is_refused_by_name() -> None:
    app, views = declare()
    app.publish("again", hr.filter(views, "url is not null"))
    again = app.topic("again", schema="url string, at timestamp", event_time="at")
    app.publish("chained", hr.filter(again, "true"))
    with pytest.raises(Unsupported, match="Step 'chained' reads topic 'again', which another"):
        hr.run(app, over="*.csv")
    app, views = declare()
    app.view("last", hr.filter(views, "url <> ''"), key="url")
    with pytest.raises(Unsupported, match=r"reads topic .*last.*, which another step writes"):
        hr.run(app, over="*.csv")
    app, views = declare()
    kept = hr.stateful(views, keep, by="url", state="n bigint", output="url string, n bigint",
                       delay=SECOND, ttl=SECOND)  # fmt: skip
    app.publish("kept", kept)
    with pytest.raises(Unsupported, match="Step 'kept' cannot be computed in one batch") as caught:
        hr.run(app, over="*.csv")
    assert "headrace produce --file" in caught.value.hint


def test_a_result_names_what_it_has() -> None:
    empty = hr.BatchResult({"hits": pa.table({})}, {}, {}, {}, pa.table({}))
    with pytest.raises(InvalidSetting, match="no view 'hit' in the result") as caught:
        empty.view("hit")
    assert caught.value.hint == "There are: hits"
