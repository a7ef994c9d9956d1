"""Upkeep of Spark's checkpoint: leftovers are removed, and plans are synced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from headrace.log import Log, open_log
from headrace.runtime.checkpoint import Checkpoint
from headrace.runtime.data_writer import StreamWriter, Target

OWNER = {"app": "shop", "step": "sales"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(f"file:{tmp_path / 'log'}") as log:
        log.create_topic("events", schema="k string")
        yield log


def _planned(path: Path, batches: int = 1) -> Path:
    """A checkpoint with the plans of some batches."""
    for folder in ("offsets", "commits"):
        (path / folder).mkdir(parents=True)
    (path / "metadata").write_text(json.dumps({"id": "some-query"}))
    for number in range(batches):
        (path / "offsets" / str(number)).write_text("v1\n{}\n{}")
    return path


def test_what_spark_was_about_to_write_is_removed_and_nothing_else(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.claim([OWNER])
    names = [".0.3f.tmp", ".1.77.tmp.crc", "0", ".0.crc"]
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    checkpoint.claim([OWNER])
    for folder in ("offsets", "commits"):
        assert {path.name for path in (tmp_path / folder).iterdir()} == {"0", ".0.crc"}


def test_the_plan_of_a_batch_is_synced_with_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("headrace.runtime.checkpoint.sync_path", synced.append)
    Checkpoint(_planned(tmp_path / "spark", 2)).sync_plan(1)
    found = {str(path.relative_to(tmp_path)) for path in synced}
    assert found == {"spark", "spark/metadata", "spark/offsets", "spark/offsets/1"}


def test_a_stream_writes_no_rows_before_their_plan_is_synced(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"k": ["a"]})
    writer = StreamWriter(Target(log.url, "events"), str(_planned(tmp_path / "spark")))
    staged = writer.write(iter(rows.to_batches()))

    def fail(path: Path) -> NoReturn:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("headrace.runtime.checkpoint.sync_path", fail)
        with pytest.raises(OSError, match="Input/output"):
            writer.commit([staged], 0)
    assert log.topic("events").records == 0
    writer.commit([staged], 0)
    assert log.topic("events").records == 1
