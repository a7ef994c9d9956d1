"""The reference pipelines compute what they claim."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from headrace.application.stores import bring_up_to_date
from headrace.testing import scripted_log
from pipelines import fraud, leaderboard, notifications, trending
from tests.servers.redis import Database
from tests.spark import shuffling

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def note(user: str, event: str | None, hours: float, text: str = "") -> dict[str, Any]:
    return {"user": user, "event": event, "text": text, "at": NOON + hours * HOUR}


def test_a_user_is_told_of_an_event_once_a_day() -> None:
    topic = notifications.notifications
    with scripted_log(start=NOON + 72 * HOUR) as log:
        log.write(topic, note("ann", "order 1", 0, "sent"), note("ann", "order 1", 0, "again"))
        log.write(topic, note("ann", "order 2", 0.5), note("bob", "order 1", 0.5))
        log.write(topic, note("ann", "order 1", -0.25, "out of order"))
        results = log.run(notifications.app, spark=shuffling(2), max_commits=1)
        published = results.topic("notifications.once")
        assert [(row["user"], row["event"]) for row in published] == [
            ("ann", "order 1"), ("ann", "order 2"), ("bob", "order 1")
        ]  # fmt: skip
        assert published[0]["text"] == "sent"

        log.write(topic, note("ann", "order 1", 23.9, "the same day"))
        log.write(topic, note("ann", "order 1", 24, "the day after"))
        log.write(topic, note("cid", "order 3", 22, "two hours late"), note("dan", None, 24))
        results = log.run(notifications.app, spark=shuffling(2))
        more = results.topic("notifications.once")[3:]
        assert [(row["user"], row["text"]) for row in more] == [
            ("ann", "the day after"),
            ("dan", ""),
        ]
        (late,) = results.topic("notifications.late")
        assert (late["user"], late["late_by"]) == ("cid", 3_600.0)
        law = results.law("notifications.once")
        assert str(law) == "9 rows = 5 counted + 1 late + 3 duplicates + 0 dead"


def win(player: int, won: int, minute: int = 0) -> dict[str, Any]:
    return {"player": f"p{player:03}", "won": won, "at": NOON + timedelta(minutes=minute)}


def test_the_leaderboard_tells_of_the_ranks_that_changed_and_of_no_others() -> None:
    with scripted_log(start=NOON + HOUR) as log:
        log.write(leaderboard.points, *(win(n, 10 * n) for n in range(1, 151)))
        results = log.run(leaderboard.app, spark=shuffling(2))
        board = results.view("leaderboard")
        assert [row["player"] for row in board] == [f"p{n:03}" for n in range(150, 50, -1)]
        changes = "leaderboard.leaderboard.changes"
        assert len(results.topic(changes)) == 100

        # One stays below, one passes two others, and one has more than before.
        log.write(leaderboard.points, win(1, 5, 1), win(140, 25, 1), win(150, 1, 1))
        results = log.run(leaderboard.app, spark=shuffling(2))
        published = [row["after"] for row in results.topic(changes)[100:]]
        assert [(row["rank"], row["player"], row["score"]) for row in published] == [
            (1, "p150", 1501), (9, "p140", 1425), (10, "p142", 1420), (11, "p141", 1410)
        ]  # fmt: skip

        log.write(leaderboard.points, win(2, 5, 2), win(3, 7, 2))
        results = log.run(leaderboard.app, spark=shuffling(2))
        assert len(results.topic(changes)) == 104, "nothing changed among the first hundred"


@pytest.mark.service
def test_the_leaderboard_is_served_from_redis(
    redis: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADERBOARD_REDIS", redis.url)
    served = run_path(str(Path(leaderboard.__file__)))
    with scripted_log(start=NOON + HOUR) as log:
        log.write(served["points"], *(win(n, 10 * n) for n in range(1, 121)))
        log.run(served["app"], spark=shuffling(2))
        bring_up_to_date(served["app"], log.log)
        assert _best(redis, 3) == [("p120", 1200), ("p119", 1190), ("p118", 1180)]
        assert len(_best(redis, 1_000)) == 100

        log.write(served["points"], win(1, 5_000, 1), win(120, 1, 1))
        log.run(served["app"], spark=shuffling(2))
        bring_up_to_date(served["app"], log.log)
        assert _best(redis, 2) == [("p001", 5010), ("p120", 1201)]
        players = [player for player, _ in _best(redis, 1_000)]
        assert len(players) == 100 and "p021" not in players, "the last one has left the board"


def _best(redis: Database, count: int) -> list[tuple[str, float]]:
    with closing(redis.connect()) as connected:
        client: Any = connected
        version = client.hget("leaderboard:leaderboard", "version").decode()
        board = f"leaderboard:leaderboard:ranking:{version}"
        found = client.zrevrange(board, 0, count - 1, withscores=True)
        return [(member.decode(), score) for member, score in found]


def post(minute: float, *hashtags: str) -> dict[str, Any]:
    return {"user": "ann", "hashtags": list(hashtags), "at": NOON + timedelta(minutes=minute)}


def test_a_burst_across_a_boundary_is_whole_in_one_hopping_window() -> None:
    with scripted_log(start=NOON + HOUR) as log:
        log.write(trending.posts, *(post(4.5, "eclipse") for _ in range(3)))
        log.write(trending.posts, *(post(5.5, "eclipse", "moon") for _ in range(3)))
        log.write(trending.posts, *(post(2, f"tag{n:02}") for n in range(12)), post(3))
        results = log.run(trending.app, spark=shuffling(2))

        def most(view: str) -> int:
            rows = (row for row in results.view(view) if row["hashtag"] == "eclipse")
            return max(int(row["posts"]) for row in rows)

        assert (most("trending_tumbling"), most("trending_hopping")) == (3, 6)
        first = [
            r
            for r in results.view("trending_tumbling")
            if str(NOON)[11:19] in str(r["window_start"])
        ]
        assert [row["rank"] for row in first] == list(range(1, 11)), "twelve more have one post"


def use(
    name: str, second: float, card: str, amount: str = "20", lat: float = 50.0
) -> dict[str, Any]:
    at = NOON + timedelta(seconds=second)
    place = {"merchant": "m", "lat": lat, "lon": 8.0}
    return {"transaction": name, "card": card, "amount": Decimal(amount), "at": at, **place}


def test_cards_are_flagged_by_each_rule_with_its_evidence_and_by_no_other() -> None:
    own = {"holder": "holder", "usual": Decimal(100), "home_lat": 50.0, "home_lon": 8.0}
    with scripted_log(start=NOON + HOUR) as log:
        log.write(fraud.profiles, *({"card": f"{n}", "changed": NOON, **own} for n in range(1, 5)))
        spent = use("b0", 0, "2", "2500"), use("b1", 60, "2", "2500")
        log.write(fraud.transactions, *(use(f"a{n}", 12 * n, "1", "1") for n in range(6)), *spent)
        log.write(fraud.transactions, use("b2", 599, "2", "0.01"), use("c0", 595, "3"))
        log.write(fraud.transactions, use("c1", 595, "3"), use("c2", 595, "3", lat=50.01))
        log.write(fraud.transactions, use("d0", 600, "4", "2000"), use("e0", 600, "unknown"))
        results = log.run(fraud.app, spark=shuffling(2))
        published = {row["alert"]: row for row in results.topic("fraud.alerts")}
        assert list(published) == ["a5:too many", "b2:too much", "c2:too fast"]
        assert published["a5:too many"]["evidence"] == [f"a{n}" for n in range(6)]
        assert published["a5:too many"]["value"] == 6.0
        assert published["b2:too much"]["evidence"] == ["b0", "b1", "b2"]
        assert published["b2:too much"]["value"] == 5000.01
        assert published["b2:too much"]["since"] == NOON
        assert published["c2:too fast"]["evidence"] == ["c1", "c2"]
        assert published["c2:too fast"]["value"] is None, "no time has passed between the two"

        # Far from home, for a hundred times the usual amount.
        log.write(fraud.transactions, use("d1", 620, "4", "4000", lat=52.0))
        results = log.run(fraud.app, spark=shuffling(2))
        more = {row["alert"]: row for row in results.topic("fraud.alerts")[3:]}
        assert set(more) == {"d1:model", "d1:too fast", "d1:too much"}
        assert 0.9 < more["d1:model"]["value"] < 1
        assert results.law("fraud.alerts").holds
