"""The hundred players with the most points, and a changelog of them.

    headrace run pipelines/leaderboard.py:app
    headrace views show leaderboard
    headrace consume leaderboard.leaderboard.changes

A player's points are added up forever. The view has a row for each rank. Its changelog has a change
for each rank that goes to another player or whose player gets more points, and no others: a game
that changes nothing in the top hundred publishes nothing.

With LEADERBOARD_REDIS=redis://HOST:PORT, the board is served from Redis as well: the sorted set
leaderboard:leaderboard:ranking:VERSION has the players by their score, for `ZREVRANGE`.
"""

import os
from datetime import timedelta as td

import headrace as hr

app = hr.App("leaderboard", log="file:./data")

points = app.topic(
    "points", schema="player string, won bigint, at timestamp", key="player", event_time="at"
)

totals = hr.aggregate(
    points,
    by="player",
    window=hr.running(hr.FOREVER),
    lateness=hr.Lateness(delay=td(seconds=10), grace=td(0)),
    score=hr.sum("won"),
)

address = os.environ.get("LEADERBOARD_REDIS")
redis = hr.Redis(address, ranking="score", member="player") if address else None

app.view("leaderboard", hr.top(totals, 100, by="score"), store=redis)
