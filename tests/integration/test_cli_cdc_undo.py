"""`headrace cdc undo`: its script is run on a SQLite database."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.log import open_log
from tests.integration.test_cli_running import Cli
from tests.unit.captured_rows import MOMENT, Captured

COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string())])
RANGE = ("--from", "2023-11-14T22:13:00Z", "--to", "2023-11-14T22:14:00Z")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path)
    with open_log(made.url) as log:
        orders = Captured(log, COLUMNS)
        for id in range(3):
            orders.change({"id": id, "note": f"it's {id}"}, None, order=id + 1, at=MOMENT)
        orders.write()
    return made


def test_the_script_brings_deleted_rows_back(cli: Cli, tmp_path: Path) -> None:
    done = cli.run("cdc", "undo", "shop", *RANGE)
    assert done.stderr == "Takes back 3 changes of 1 transaction\n"
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)")
        db.commit()
        db.executescript(done.stdout)
        rows = db.execute("SELECT * FROM orders ORDER BY id").fetchall()
    assert rows == [(0, "it's 0"), (1, "it's 1"), (2, "it's 2")]


def test_a_script_in_a_file_is_for_its_owner_and_never_overwrites(cli: Cli, tmp_path: Path) -> None:
    words = ("cdc", "undo", *RANGE, "--tables", "orders", "-o", str(tmp_path / "undo.sql"))
    assert cli.json(*words) == {
        "file": str(tmp_path / "undo.sql"),
        "transactions": 1,
        "changes": 3,
        "tables": ["shop.main.orders"],
        "not_undone": {"no_before": {}, "found_by_snapshot": {}, "removed": []},
    }
    assert stat.S_IMODE((tmp_path / "undo.sql").stat().st_mode) == 0o600
    assert "undo.sql exists" in cli.run(*words, code=2).stderr


def test_a_range_without_changes_writes_nothing(cli: Cli) -> None:
    done = cli.run("cdc", "undo", "--from", "2020-01-01", "--to", "2020-01-02")
    assert done.stdout == ""
    assert "There are no changes from 2020-01-01 to 2020-01-02" in done.stderr


def test_what_cannot_be_undone_is_refused_with_the_reason(cli: Cli) -> None:
    for words, reason in (
        ((*RANGE, "--tables", "order"), "Did you mean 'orders'?"),
        (("shp", *RANGE), "Did you mean 'shop'?"),
        (("--from", "1", "--to", "2"), "An offset does not limit a range"),
        (("--from", "2026-01-02", "--to", "2026-01-01"), "is empty"),
        ((*RANGE, "--json"), "--json has no place for the script"),
    ):
        assert reason in cli.run("cdc", "undo", *words, code=2).stderr


def test_a_log_without_captured_changes_says_how_to_capture(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    open_log(cli.url).close()
    assert "headrace cdc attach" in cli.run("cdc", "undo", *RANGE, code=2).stderr
