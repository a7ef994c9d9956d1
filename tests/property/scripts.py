"""Random logs for the property tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import to_datetime
from headrace.testing import ScriptedLog
from tests.seed import SEED

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEGIN = NOW - timedelta(hours=2)
SECOND = timedelta(seconds=1)
FAR = NOW + 9_000 * SECOND
"""A time ahead of the clock."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = "k string, n int, tags array<string>, at timestamp"
LATENESS = hr.Lateness(20 * SECOND, 60 * SECOND)

Test = TypeVar("Test", bound=Callable[..., None])

Draw = Callable[[st.SearchStrategy[Any]], Any]
Commit = list[dict[str, Any]] | datetime
"""Rows, or a time to advance the frontier to."""

ERAS = tuple(
    begin.replace(tzinfo=UTC) - BEGIN
    for begin in (
        datetime(1, 1, 1, 0, 10),
        datetime(1969, 12, 31, 23, 40),
        BEGIN,
        datetime(9999, 12, 31, 18),
        datetime(1582, 10, 4, 23, 40),
    )
)
"""Offsets of a script: both ends of time, the Unix epoch, the Gregorian calendar's start."""

CHOICES: dict[str, Any] = {
    "pairs": {"retractions": True},
    "never": {"early": "never"},
    "rows": {"early": 2, "retractions": True},
    "time": {"early": 25 * SECOND, "retractions": True},
}
"""Options of published outputs."""


def quickly(examples: int, *, fresh: bool = False) -> Callable[[Test], Test]:
    """Settings for a number of examples: always the same ones, or `fresh` ones in every run.

    A failing example is not shrunk, which would take longer than a test may.
    """
    fresh = fresh and SEED is not None
    chosen = settings(
        max_examples=examples,
        deadline=None,
        derandomize=settings().derandomize and not fresh,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: chosen(seed(SEED)(test) if fresh else test)


@st.composite
def scripts(draw: Draw) -> list[Commit]:
    """Commits whose event times advance irregularly, with rows from long before."""
    moment = BEGIN
    script: list[Commit] = []
    back = st.sampled_from([0, 0, 0, 1, 5, 19, 20, 21, 40, 79, 80, 81, 100, 139, 140, 400])
    for advance in draw(st.lists(st.sampled_from([0, 1, 10, 29, 30, 31, 60, 200]), max_size=14)):
        moment += advance * SECOND
        if draw(st.integers(0, 3)) == 3:
            script.append(moment + draw(st.sampled_from([-5, 0, 100])) * SECOND)
            continue
        commit: list[dict[str, Any]] = []
        for _ in range(draw(st.integers(1, 5))):
            at: datetime | None = moment - draw(back) * SECOND
            match draw(st.integers(0, 19)):
                case 0:
                    at = None
                case 1:
                    at = FAR
            commit.append(
                {
                    "k": draw(st.sampled_from(["a", "b", None])),
                    "n": draw(st.sampled_from([None, -3, 0, 1, 1, 2, 7])),
                    "tags": draw(st.sampled_from([None, [], ["x"], ["x", "y"], ["y", "y", "z"]])),
                    "at": at,
                }
            )
        script.append(commit)
    return script


def next_era(seen: Counter[str]) -> timedelta:
    """Each era in turn, because Hypothesis would repeat some of them and skip others."""
    seen["eras"] += 1
    return ERAS[(seen["eras"] - 1) % len(ERAS)]


def moved(commit: Commit, era: timedelta) -> Commit:
    """A commit in another era."""
    return commit + era if isinstance(commit, datetime) else moved_rows(commit, era)


def moved_rows(rows: list[dict[str, Any]], era: timedelta) -> list[dict[str, Any]]:
    """Rows in another era. Those ahead of the clock stay ahead: no commit is older than 1970."""
    least = {True: _EPOCH + (FAR - NOW), False: datetime.min.replace(tzinfo=UTC)}
    return [
        row | {"at": max(row["at"] + era, least[row["at"] > NOW])} if row.get("at") else row
        for row in rows
    ]


def write(
    log: ScriptedLog,
    app: hr.App,
    script: list[Commit],
    topic: str = "events",
    era: timedelta = ERAS[2],
) -> None:
    """Write a script. Rows arrive 15 seconds or more after their newest plausible event time."""
    log.log.ensure_topic(app.topics[topic])
    for commit in (moved(commit, era) for commit in script):
        if isinstance(commit, datetime):
            log.log.advance(topic, commit)
        else:
            times = [row["at"] for row in commit if row["at"] is not None and row["at"] < NOW + era]
            now = to_datetime(log.clock.now())
            log.pass_time(max([moment + 15 * SECOND for moment in times] + [now]) - now)
            log.write(topic, *commit)
        log.pass_time(10 * SECOND)
