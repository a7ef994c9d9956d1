"""Trending hashtags: the ten with the most posts, in tumbling and in hopping windows.

    headrace run pipelines/trending.py:app
    headrace views show trending_tumbling
    headrace views show trending_hopping

Both views rank five minutes of posts. Tumbling windows begin every five minutes: a post counts
once, and a burst across a boundary is halved. Hopping windows begin every minute: a post counts in
five of them, so the newest ranking is never more than a minute old, and a burst is in one of them
whole.
"""

from datetime import timedelta as td

import headrace as hr

app = hr.App("trending", log="file:./data")

posts = app.topic(
    "posts",
    schema="user string, hashtags array<string>, at timestamp",
    key="user",
    event_time="at",
)

tags = hr.explode(posts, "hashtags", into="hashtag")


def top_ten(window: hr.Window) -> hr.Top:
    """The ten hashtags with the most posts in each window."""
    lateness = hr.Lateness(delay=td(seconds=10), grace=td(minutes=1))
    counted = hr.aggregate(tags, by="hashtag", window=window, lateness=lateness, posts=hr.count())
    return hr.top(counted, 10, by="posts")


app.view("trending_tumbling", top_ten(hr.tumbling(td(minutes=5))))
app.view("trending_hopping", top_ten(hr.hopping(td(minutes=5), every=td(minutes=1))))
