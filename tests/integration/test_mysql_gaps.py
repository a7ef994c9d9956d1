"""Gaps that only reading the binlog of MariaDB shows: a capture names them, and heals them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cdc.state import read_state
from headrace.errors import SourceGap
from tests.conformance.sources.mariadb import MariadbStage
from tests.conformance.sources.stage import SMALL
from tests.conformance.sources.test_snapshots import ITEMS, TEN
from tests.servers.mariadb import Database

pytestmark = pytest.mark.service


def write_a_statement(stage: MariadbStage) -> None:
    """Write as a session that logs statements."""
    stage.execute(
        "SET binlog_format = 'STATEMENT'",
        "UPDATE items SET name = 'unseen' WHERE id = 3",
        "SET binlog_format = 'ROW'",
    )


def rename(stage: MariadbStage) -> None:
    """Swap in another table."""
    stage.execute(
        "CREATE TABLE fresh LIKE items",
        "INSERT INTO fresh VALUES (1, 'swapped'), (42, 'new')",
        "RENAME TABLE items TO gone, fresh TO items",
    )


@pytest.mark.parametrize("lose", [write_a_statement, rename])
@pytest.mark.parametrize("healing", [{"heal": True}, {"snapshot": "when_needed"}])
def test_a_gap_met_while_reading_is_healed_and_the_stream_goes_on(
    tmp_path: Path,
    mariadb: Database,
    lose: Callable[[MariadbStage], None],
    healing: dict[str, object],
) -> None:
    with contextlib.closing(MariadbStage(tmp_path, mariadb)) as stage:
        stage.execute(ITEMS, TEN)
        stage.capture(tables=["items"], limits=SMALL)
        stage.execute("UPDATE items SET name = 'before' WHERE id = 2")
        lose(stage)
        with pytest.raises(SourceGap, match="--heal"):
            stage.capture(tables=["items"], limits=SMALL)
        stage.capture(tables=["items"], limits=SMALL, **healing)
        assert stage.folded("items") == stage.rows("items")
        (notice,) = read_state(stage.log, "shop").notices
        assert notice.kind == "gap" and "transaction" in notice.text
        stage.execute("UPDATE items SET name = 'later'", "DELETE FROM items WHERE id = 1")
        stage.capture(tables=["items"], limits=SMALL)
        assert stage.folded("items") == stage.rows("items")
