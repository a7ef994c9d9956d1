"""A follower killed at any moment, over and over: afterwards each store has the view's rows."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.clock import SECOND, SystemClock
from headrace.store.contract import StoredView
from headrace.store.following import NOTHING, Follower
from headrace.store.suite import rows_of
from tests.seed import SEED
from tests.servers.postgresql import Database
from tests.view_writer import ViewWriter
from tests.waiting import started

_KEYS = 40
_clock = SystemClock()


def kill_and_compare(folder: Path, kills: int, *postgres: str) -> None:
    chance = random.Random(SEED)
    stores: list[hr.Store] = [hr.Search(columns=["note"]), *map(hr.Postgres, postgres)]
    with hr.open_log(f"file:{folder}") as log, ViewWriter(log) as writer:
        for number in range(kills):
            with subprocess.Popen(
                [sys.executable, "-m", "tests.recovery.storing", log.url, *postgres],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,
            ) as process:
                started(process)
                assert process.stdout is not None
                process.stdout.readline()
                if number and chance.random() < 0.3:
                    writer.begin_anew()
                for _ in range(chance.randrange(2, 12)):
                    change(writer, chance)
                    _clock.sleep(int(chance.random() * SECOND / 10))
                process.send_signal(signal.SIGKILL)
                process.wait()
            change(writer, chance)
        for store in stores:
            assert rows_after(log, writer, store) == writer.rows(), store.address


def change(writer: ViewWriter, chance: random.Random) -> None:
    """Write some rows, and delete others."""
    ids = chance.sample(range(_KEYS), 8)
    rows = [{"id": id, "note": f"note {chance.randrange(1000)}"} for id in ids[:5]]
    writer.write(*rows, deleted=[{"id": id} for id in ids[5:]], revision=chance.randrange(1000))


def rows_after(log: hr.Log, writer: ViewWriter, store: hr.Store) -> list[dict[str, Any]]:
    """The rows of a store after it has caught up."""
    with Follower(log, "shop", "orders", store) as follower:
        while follower.advance() is not NOTHING:
            pass
        source = follower._look()
        assert source is not None
        view: StoredView = source.view
    with store.live(view) as live:
        return rows_of(live)


def test_a_killed_follower_leaves_stores_that_catch_up(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, 2)


@pytest.mark.slow
@pytest.mark.service
def test_a_follower_killed_over_and_over_leaves_stores_that_catch_up(
    tmp_path: Path, postgresql: Database
) -> None:
    kill_and_compare(tmp_path, 15, postgresql.url)
