"""Page views per page and minute, in event time.

    headrace run pipelines/pageviews.py:app
    headrace views show hits_per_minute
    headrace consume pageviews.late

A window fires when the watermark, ten seconds behind, passes its end. For five more minutes late
views amend it; even later ones are not counted but go to `pageviews.late`.
"""

from datetime import timedelta as td

import headrace as hr

app = hr.App("pageviews", log="file:./data")

views = app.topic(
    "pageviews", schema="url string, user string, at timestamp", key="url", event_time="at"
)

per_minute = hr.aggregate(
    views,
    by="url",
    window=hr.tumbling(td(minutes=1)),
    lateness=hr.Lateness(delay=td(seconds=10), grace=td(minutes=5)),
    hits=hr.count(),
    people=hr.approx_distinct("user"),
)

app.view("hits_per_minute", per_minute, key=["url", "window_start"])
app.publish("pageviews.late", per_minute.late)
