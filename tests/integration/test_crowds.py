"""A hot key: the step stops and names it, before memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import headrace as hr
from headrace.errors import CrowdedKey
from headrace.testing import ScriptedLog, scripted_log
from tests.spark import shared

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW + timedelta(hours=2)) as log:
        yield log


class Ads:
    """Impressions and clicks, some of an ad that does not exist."""

    def __init__(self, log: ScriptedLog, limit: int, *, known: bool = False) -> None:
        self._log = log
        self.app = hr.App("ads")
        shown = self.app.topic("shown", schema="ad int, at timestamp", event_time="at")
        clicks = self.app.topic("clicks", schema="ad int, at timestamp", event_time="at")
        left: hr.Stream = hr.filter(shown, "ad > 0") if known else shown
        made = hr.join(
            left, clicks, on="ad", after=9 * MINUTE, delay=MINUTE, prefix="click_", limit=limit
        )
        self.app.publish("pairs", made)
        for topic in self.app.topics.values():
            log.log.ensure_topic(topic)

    def write(self, topic: str, minute: float, *ads: int | None) -> None:
        self._log.write(topic, *({"ad": ad, "at": NOW + minute * MINUTE} for ad in ads))

    def pairs(self, max_commits: int = 1_000) -> int:
        results = self._log.run(self.app, spark=shared(), max_commits=max_commits)
        return len(results.topic("pairs"))


@pytest.mark.parametrize("cut", [pytest.param(1, marks=pytest.mark.slow), 1_000])
def test_a_join_stops_at_a_key_with_too_many_rows_however_it_is_cut(
    log: ScriptedLog, cut: int
) -> None:
    ads = Ads(log, limit=5)
    for n in range(6):
        ads.write("shown", n / 10, 0, n + 1)
    ads.write("clicks", 1, 0, 1, 2)
    with pytest.raises(CrowdedKey, match=r"6 rows of shown with ad = 0 in the 0:10:00") as stopped:
        ads.pairs(cut)
    assert stopped.value.details["key"] == {"ad": 0}
    assert "test_crowds.py" in stopped.value.hint
    published = [record.value for record in log.records("pairs")]
    assert not any(row["ad"] == 0 for row in published) or cut == 1


def test_what_has_too_many_rows_can_be_left_out_or_allowed(log: ScriptedLog) -> None:
    for n in range(6):
        Ads(log, limit=5).write("shown", n / 10, 0, n + 1)
    ads = Ads(log, limit=6)
    ads.write("clicks", 1, 0, 1)
    assert ads.pairs() == 7
    with scripted_log(start=NOW + timedelta(hours=2)) as other:
        ads = Ads(other, limit=5, known=True)
        for n in range(6):
            ads.write("shown", n / 10, 0, n + 1)
        ads.write("clicks", 1, 0, 1)
        assert ads.pairs() == 1


@pytest.mark.slow
def test_rows_of_other_times_and_rows_without_a_key_do_not_add_up(log: ScriptedLog) -> None:
    ads = Ads(log, limit=5)
    for n in range(6):
        ads.write("shown", 10 * n, 0, 0, None, None, None)
        ads.write("clicks", 10 * n, 0)
    assert ads.pairs(max_commits=2) >= 12


@pytest.mark.slow
def test_a_join_that_goes_on_knows_what_it_has_counted(log: ScriptedLog) -> None:
    ads = Ads(log, limit=5)
    ads.write("shown", 1, 0, 0, 0, 0)
    ads.write("clicks", 1, 9)
    assert ads.pairs() == 0
    ads.write("shown", 2, 0, 0)
    with pytest.raises(CrowdedKey, match="6 rows"):
        ads.pairs()
