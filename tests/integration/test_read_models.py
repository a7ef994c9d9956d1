"""Several read models over the same events: none skips one, and each is repaired on its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import headrace as hr
from headrace.log.file.log import FileLog
from tests import transfers as t
from tests.spark import shared
from tests.transfers import ACCOUNT, Ask, Deposit

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAY = hr.tumbling(timedelta(days=1))
PATIENT = hr.Lateness(delay=timedelta(minutes=1), grace=timedelta(0))


def declared(counts: str) -> hr.App:
    """Read models of deposits, of which those that meet a condition count, and of all events."""
    app, domain = hr.App("models"), t.bank()
    deposits = hr.filter(domain.stream(app, "deposited"), counts)
    app.view(
        "deposits",
        hr.aggregate(
            deposits, by="aggregate", window=DAY, lateness=PATIENT, amount=hr.sum("amount")
        ),
    )
    app.view(
        "events",
        hr.aggregate(
            domain.stream(app), by="type", window=DAY, lateness=PATIENT, events=hr.count()
        ),
    )
    return app


def test_a_read_model_is_repaired_beside_the_live_one_and_the_diff_says_what_changed(
    tmp_path: Path,
) -> None:
    wrong, right = declared("amount < 50"), declared("amount > 0")
    with FileLog(tmp_path / "log") as log, t.bank().open(log) as store:
        for id, amount in (("a", 10), ("a", 70), ("b", 20)):
            store.handle(ACCOUNT, id, Deposit(amount), at=NOON)
        store.handle(ACCOUNT, "a", Ask("a>b", "b", 5), at=NOON)
        laws = {one.step: one.law for one in hr.run(wrong, log, spark=shared())}
        events = sum(len(batch) for batch in log.read("bank.events"))
        # Caught up means that every event was counted, or filtered by its type or by the condition.
        assert (laws["events"].counted, laws["deposits"].counted) == (events, 2)
        assert laws["deposits"].filtered == events - 2
        with hr.open_views(log.home) as views:
            before = views.rows("events")
            assert {row["aggregate"]: row["amount"] for row in views.rows("deposits")} == {
                "account/a": 10, "account/b": 20,
            }  # fmt: skip
            seen = hr.rebuild(right, "deposits", log, spark=shared())
            assert (seen.diff.added, seen.diff.removed, seen.diff.changed) == (0, 0, 1)
            assert (seen.diff.same, seen.switched) == (1, False)
            assert views.rows("deposits")[0]["amount"] == 10, "a diff changes nothing"
            hr.rebuild(right, "deposits", log, switch=True, spark=shared())
            assert {row["aggregate"]: row["amount"] for row in views.rows("deposits")} == {
                "account/a": 80, "account/b": 20,
            }  # fmt: skip
            assert views.rows("events") == before
        hr.run(right, log, spark=shared())
        assert hr.rebuild(right, "deposits", log, spark=shared()).diff.empty
