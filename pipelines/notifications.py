"""Notifications sent once: one to each user of each event within a day.

    headrace run pipelines/notifications.py:app
    headrace consume notifications.once

Whoever sends reads `notifications.once`, in which the first of all that repeat each other is, as
soon as it comes. The day runs from the time of the notification that was sent, so one of the day
after is sent again. A notification may come an hour late; after that nobody can tell whether it
was sent already, so it is not: it is in `notifications.late`.
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
