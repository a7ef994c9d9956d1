"""Alerts on suspicious card transactions, each with the transactions that prove it."""

from datetime import timedelta as td

import headrace as hr


def km(lat: str, lon: str, to_lat: str, to_lon: str) -> str:
    """The great-circle distance between two places, in Spark SQL."""
    north, east = (
        f"pow(sin(radians({a} - {b}) / 2), 2)" for a, b in ((to_lat, lat), (to_lon, lon))
    )
    across = f"{north} + cos(radians({lat})) * cos(radians({to_lat})) * {east}"
    return f"12742 * nanvl(asin(sqrt({across})), pi() / 2)"


MINUTE = "filter(recent, r -> r.at >= at - INTERVAL 1 MINUTE)"
SPENT = """aggregate(recent, cast(0 AS decimal(18, 2)),
    (sum, r) -> cast(sum + coalesce(r.amount, 0) AS decimal(18, 2)))"""

LAST = "try_element_at(recent, -2)"
TRAVELLED = km(f"{LAST}.lat", f"{LAST}.lon", "lat", "lon")
HOURS = f"(unix_micros(at) - unix_micros({LAST}.at)) / 3.6e9"

SCORE = f"""1 / (1 + exp(6 - 1.5 * ln(greatest(amount, 0.01) / greatest(coalesce(usual, 50), 1))
    - 0.01 * coalesce({km("home_lat", "home_lon", "lat", "lon")}, 0) - 0.3 * size({MINUTE})))"""
"""A model's score from 0 to 1, by amount, distance from home and frequency."""

app = hr.App("fraud")

transactions = app.topic(
    "transactions",
    schema="transaction string, card string, amount decimal(10, 2), merchant string, "
    "lat double, lon double, at timestamp",
    key="card",
    event_time="at",
)
profiles = app.topic(
    "profiles",
    schema="card string, holder string, usual decimal(10, 2), home_lat double, home_lon double, "
    "changed timestamp",
    key="card",
    event_time="changed",
    settings={"cleanup": "compact"},
)

alerts = hr.alerts(
    hr.enrich(transactions, hr.table(profiles, key="card"), on="card", mode="latest"),
    by="card",
    event="transaction",
    within=td(minutes=10),
    delay=td(seconds=30),
    rules={
        "too many": hr.rule(f"size({MINUTE}) > 5", evidence=MINUTE, value=f"size({MINUTE})"),
        "too much": hr.rule(f"{SPENT} > 5000", value=SPENT),
        "too fast": hr.rule(
            f"{TRAVELLED} > 500 * {HOURS}",
            evidence="slice(recent, -2, 2)",
            value=f"try_divide({TRAVELLED}, {HOURS})",
        ),
        "model": hr.rule(f"{SCORE} > 0.9", evidence=MINUTE, value=SCORE),
    },
)
app.publish("fraud.alerts", alerts)
app.publish("fraud.late", alerts.late)
