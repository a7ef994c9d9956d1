"""Suspicious card transactions, by the profile in the bank's database, and their count per card.

    headrace cdc attach bank.db --tables customers
    headrace cdc run bank
    headrace run pipelines/suspicions.py:app

Nobody asks the database for each transaction: its table of customers is captured, and the pipeline
has the rows. A changed profile counts for the next transaction. The count is state of the pipeline,
stored with its position in one transaction. The view and its stores set each count, and add nothing
to what they find, so neither a crash nor a repetition counts a transaction twice.
"""

from __future__ import annotations

from datetime import timedelta as td

import pyarrow as pa

import headrace as hr

app = hr.App("suspicions", log="file:./data")

transactions = app.topic(
    "transactions",
    schema="transaction string, card string, amount double, country string, at timestamp",
    key="card",
    event_time="at",
)
customers = app.captured(
    "bank.main.customers",
    schema="card string, usual double, country string, blocked bigint",
    key="card",
)

with_profile = hr.enrich(transactions, customers, on="card", mode="latest", prefix="profile_")
suspicious = hr.filter(
    with_profile,
    "profile_usual IS NULL OR profile_blocked = 1 OR amount > 10 * profile_usual "
    "OR country <> profile_country",
)


def counted(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Add the new rows of each card to its count; show the last of them beside it."""
    new = events.group_by("card", use_threads=False).aggregate(
        [("transaction", "count"), ("transaction", "last"), ("at", "max")]
    )
    new = new.rename_columns(["card", "suspicious", "last", "at"])
    both = pa.concat_tables([state, new.select(state.column_names)])
    counts = both.group_by("card").aggregate([("suspicious", "sum")])
    counts = counts.rename_columns(["card", "suspicious"])
    return counts, counts.join(new.select(["card", "last", "at"]), "card", join_type="inner")


app.view(
    "suspicious_count",
    hr.stateful(
        suspicious,
        counted,
        by="card",
        state="suspicious bigint",
        output="card string, suspicious bigint, last string, at timestamp",
        delay=td(hours=1),
        ttl=td(days=90),
        order="arrival",
        event_time="at",
    ),
    key="card",
)
