"""Ad impressions, each with its click within an hour, or without a click.

    headrace run pipelines/impressions.py:app
    headrace consume impressions.clicked
    headrace consume impressions.late

An impression without a click is published once none can come any more: after an hour, plus the two
minutes that clicks may be late, in the event time of the clicks. Until then it is held in state: at
10 million impressions an hour, as many rows.
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
