"""Deduplicated notifications: one per user and event within a day.

    headrace run pipelines/notifications.py:app
    headrace consume notifications.once

The sender reads `notifications.once`, which gets the first of each set of duplicates as soon as it
arrives. The day starts at the event time of that notification, so a duplicate a day later is sent
again. A notification may come an hour late. A later one goes to `notifications.late`, because it is
not known any more whether it was sent.
"""

from datetime import timedelta as td

import headrace as hr

app = hr.App("notifications", log="file:./data")

notifications = app.topic(
    "notifications",
    schema="user string, event string, text string, at timestamp",
    key="user",
    event_time="at",
)

once = hr.deduplicate(
    notifications, by=["user", "event"], ttl=td(hours=24), keep="first", delay=td(hours=1)
)

app.publish("notifications.once", once)
app.publish("notifications.late", once.late)
