"""Ads that were shown, each with the click that followed within an hour, or without any.

    headrace run pipelines/impressions.py:app
    headrace consume impressions.clicked
    headrace consume impressions.late

An impression without a click is told of when none can come any more: an hour after it, and the two
minutes that clicks may be late, by the clicks' own event time. Until then both are held: at 10
million impressions an hour, as many rows.
"""

from datetime import timedelta as td

import headrace as hr

app = hr.App("impressions", log="file:./data")

shown = app.topic(
    "impressions", schema="ad string, user string, at timestamp", key="ad", event_time="at"
)
clicks = app.topic(
    "clicks", schema="ad string, user string, at timestamp", key="ad", event_time="at"
)

clicked = hr.join(
    shown,
    clicks,
    on=["ad", "user"],
    after=td(hours=1),
    how="left",
    delay=td(minutes=2),
    prefix="click_",
)

app.publish("impressions.clicked", clicked)
app.publish("impressions.late", clicked.late)
