"""The notes of a capture for others: it runs without them."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.cdc.attachment import Attachment
from headrace.cdc.notes import capture_note
from headrace.cdc.supervised import SupervisedRun
from headrace.log import open_log


@pytest.mark.parametrize("full", [False, True])
def test_a_disk_that_has_no_room_for_a_note_stops_no_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    def write_note(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE items (id INTEGER PRIMARY KEY)")
        db.execute("INSERT INTO items VALUES (1)")
    if full:
        monkeypatch.setattr("headrace.cdc.notes.write_note", write_note)
    attachment = Attachment("shop", "sqlite", f"sqlite:{tmp_path / 'shop.db'}", ("main.items",))
    with open_log(f"file:{tmp_path / 'log'}") as log:
        progress = SupervisedRun(log, attachment, until_caught_up=True).run()
        note: Any = capture_note(log, "shop")
    assert progress.snapshot_rows == 1 and progress.trouble is None
    assert (note is None) if full else (note.state == "stopped" and note.lag == 0)
