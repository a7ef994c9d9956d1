"""Read your own writes: who waits for a view sees what a command has changed, or is told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
import headrace.eventsourcing as es
from headrace.application.run import Run
from headrace.application.stores import bring_up_to_date
from headrace.errors import InvalidPosition, PipelineFailed, UnknownView, UserError, ViewBehind
from headrace.log import Log
from headrace.log.file.log import FileLog
from tests import transfers as t
from tests.spark import shared
from tests.transfers import ACCOUNT, Deposit

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = timedelta(0)
DAY = timedelta(days=1)
PATIENT = hr.Lateness(delay=timedelta(minutes=1), grace=NOW)


class Broken(Exception):
    pass


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with FileLog(tmp_path / "log") as log:
        yield log


def declared(folder: Path, *, chained_alone: bool = False) -> hr.App:
    """A view over events, and one over the results of another step."""
    app, domain = hr.App("reads"), t.bank()
    deposits = domain.stream(app, "deposited")
    window = hr.tumbling(DAY)
    if not chained_alone:
        daily = hr.aggregate(
            deposits, by="aggregate", window=window, lateness=PATIENT, amount=hr.sum("amount")
        )
        app.view("daily", daily, store=hr.Delta(f"{folder}/delta"))
    once = hr.deduplicate(deposits, by="id", ttl=DAY, delay=PATIENT.delay)
    app.view(
        "chained",
        hr.aggregate(once, by="aggregate", window=window, lateness=PATIENT, hits=hr.count()),
    )
    return app


def deposited(store: es.Store, amount: int) -> int:
    commit = store.handle(ACCOUNT, "a", Deposit(amount), at=NOON).commit
    assert commit is not None
    return commit


def amounts(log: Log) -> list[int]:
    with hr.open_views(log.home) as views:
        return [row["amount"] for row in views.rows("daily")]


def run(app: hr.App, log: Log) -> None:
    with hr.start(app, log, until_caught_up=True, spark=shared(), stores=False) as running:
        running.wait()


def test_a_view_is_waited_for_until_it_has_the_commit(tmp_path: Path, log: Log) -> None:
    app = declared(tmp_path)
    with t.bank().open(log) as store:
        first = deposited(store, 5)
        with pytest.raises(ViewBehind, match="no results yet"):
            hr.wait_for(app, "daily", commit=first, timeout=NOW, log=log)
        run(app, log)
        for view in ("daily", "chained"):
            hr.wait_for(app, view, commit=first, timeout=NOW, log=log)
        second = deposited(store, 7)
        with pytest.raises(ViewBehind, match="daily") as caught:
            hr.wait_for(app, "daily", commit=second, timeout=NOW, log=log)
        assert caught.value.details["reached"] == first
        # What was to be read is read in a thread, so this waits in earnest.
        last = log.head()
        with hr.start(app, log, spark=shared(), stores=False):
            for view in ("daily", "chained"):
                hr.wait_for(app, view, commit=last, timeout=DAY, log=log)
            assert amounts(log) == [12]


def test_a_chain_has_a_commit_when_its_last_step_has(tmp_path: Path, log: Log) -> None:
    app, broken = declared(tmp_path, chained_alone=True), True

    def crash(point: str) -> None:
        if broken and point == "before sending":
            raise Broken

    with t.bank().open(log) as store:
        deposited(store, 5)
        run(app, log)
        second = deposited(store, 6)
    failing = pytest.raises(PipelineFailed)
    crashing = Run(app, log, until_caught_up=True, spark=shared(), crash_point=crash, stores=False)
    with failing, crashing as running:
        running.wait()
    with pytest.raises(ViewBehind, match=r"'chained.part' has not sent its results"):
        hr.wait_for(app, "chained", commit=second, timeout=NOW, log=log)
    broken = False
    run(app, log)
    hr.wait_for(app, "chained", commit=second, timeout=NOW, log=log)


def test_a_store_is_waited_for_by_what_it_has_applied(tmp_path: Path, log: Log) -> None:
    app = declared(tmp_path)
    with t.bank().open(log) as store:
        first = deposited(store, 5)
        run(app, log)
        with pytest.raises(ViewBehind, match="is not filled"):
            hr.wait_for(app, "daily", commit=first, timeout=NOW, store="delta", log=log)
        bring_up_to_date(app, log)
        hr.wait_for(app, "daily", commit=first, timeout=NOW, store="delta", log=log)
        second = deposited(store, 5)
        run(app, log)
        hr.wait_for(app, "daily", commit=second, timeout=NOW, log=log)
        with pytest.raises(ViewBehind, match="changes to apply"):
            hr.wait_for(app, "daily", commit=second, timeout=NOW, store="delta", log=log)
        bring_up_to_date(app, log)
        hr.wait_for(app, "daily", commit=second, timeout=NOW, store="delta", log=log)


def test_what_cannot_be_waited_for_is_refused(tmp_path: Path, log: Log) -> None:
    app = declared(tmp_path)
    hr.wait_for(app, "daily", commit=None, timeout=NOW, log=log)
    with pytest.raises(UnknownView, match="daily"):
        hr.wait_for(app, "monthly", commit=0, timeout=NOW, log=log)
    with pytest.raises(UserError, match="no store 'redis'"):
        hr.wait_for(app, "daily", commit=0, timeout=NOW, store="redis", log=log)
    with pytest.raises(InvalidPosition, match="Commit 9 is not in the log"):
        hr.wait_for(app, "daily", commit=9, timeout=NOW, log=log)
