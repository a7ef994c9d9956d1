"""Orders, each with the version of its customer at the time of the order.

    headrace run pipelines/orders.py:app
    headrace consume orders.enriched

Customers are a table: a compacted topic of changes, in which a tombstone deletes a customer. An
order gets the version that was valid at its own time, not the newest, so that a replay gives the
same result. It waits for the table to reach its time, at most until other orders are a minute
ahead. A change that comes up to an hour late amends the orders that it affects.
"""

from datetime import timedelta as td

import headrace as hr

app = hr.App("orders", log="file:./data")

orders = app.topic(
    "orders",
    schema="order_id long, customer string, amount decimal(10, 2), at timestamp",
    key="customer",
    event_time="at",
)
changes = app.topic(
    "customers",
    schema="customer string, tier string, country string, since timestamp",
    key="customer",
    event_time="since",
    settings={"cleanup": "compact"},
)

customers = hr.table(changes, key="customer")
enriched = hr.enrich(
    orders,
    customers,
    on="customer",
    wait=td(minutes=1),
    amend=td(hours=1),
    prefix="customer_",
)

app.publish("orders.enriched", enriched)
