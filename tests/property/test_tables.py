"""For any interleaving of a stream and a table, Spark's lookups are the oracle's."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.log import Record
from headrace.operators.table_lookup import lookup
from headrace.operators.table_lookup.meaning import Lookups, looked_up
from headrace.oracle.tables import Changes, changes_of
from headrace.testing import Results, ScriptedLog, scripted_log
from tests.property.joining import counted, events_read
from tests.property.judging import events_in
from tests.property.scripts import (
    BEGIN,
    NOW,
    SCHEMA,
    SECOND,
    Commit,
    moved,
    next_era,
    quickly,
    scripts,
    write,
)  # fmt: skip
from tests.spark import shuffling

Change = list[dict[str, Any]] | datetime
USERS = "id string, name string, gone boolean, at timestamp"


@st.composite
def changes(draw: Any) -> list[Change]:
    """Commits of a table: versions in and out of order, deletions, and advances of the frontier."""
    moment = BEGIN
    script: list[Change] = []
    back = st.sampled_from([0, 0, 0, 1, 20, 45, 100])
    for advance in draw(st.lists(st.sampled_from([0, 1, 10, 30, 60, 200]), max_size=12)):
        moment += advance * SECOND
        if draw(st.integers(0, 3)) == 3:
            script.append(moment + draw(st.sampled_from([-5, 0, 100])) * SECOND)
            continue
        commit: list[dict[str, Any]] = []
        for _ in range(draw(st.integers(1, 3))):
            key = draw(st.sampled_from(["a", "a", "b", "c", None]))
            if key is not None and draw(st.integers(0, 5)) == 0:
                commit.append({"key": key})
                continue
            commit.append(
                {
                    "id": key,
                    "name": draw(st.sampled_from(["ann", "bob", None])),
                    "gone": draw(st.sampled_from([False, False, None, True])),
                    "at": draw(st.sampled_from([None, *[moment - draw(back) * SECOND] * 9])),
                }
            )
        script.append(commit)
    return script


def change(log: ScriptedLog, app: hr.App, commit: Change) -> None:
    """Write a commit of the table: without null keys in a keyed topic, else without deletions."""
    keyed = app.topics["users"].key is not None
    if isinstance(commit, datetime):
        log.log.advance("users", commit)
        return
    with log.log.producer() as producer, producer.transaction() as transaction:
        for row in commit:
            if "id" not in row and keyed:
                transaction.send("users", None, key=row["key"])
            elif "id" in row and not (keyed and row["id"] is None):
                transaction.send("users", row)


def declare(
    how: Any, wait: int, partitions: int, key: str | None, amend: int | None
) -> tuple[hr.App, hr.Enriched]:
    app = hr.App("enrich")
    events = app.topic("events", schema=SCHEMA, event_time="at", partitions=partitions)
    users = app.topic("users", schema=USERS, event_time="at", key=key)
    table = hr.table(hr.derive(users, shout="upper(name)"), key="id", deleted="gone")
    some: hr.Stream = hr.explode(hr.filter(events, "n is null or n > -3"), "tags", into="tag")
    late = None if amend is None else amend * SECOND
    if amend is not None:
        some, how = hr.filter(events, "n is null or n > -3"), "left"
    step = hr.enrich(
        some, table, on={"k": "id"}, how=how, wait=wait * SECOND, amend=late, prefix="user_"
    )
    app.publish("out", step)
    return app, step


def meant(step: hr.Enriched, results: Results) -> tuple[Lookups, Changes]:
    """The oracle's result for the rows in the log."""
    log = results.log

    def frontier(topic: str, commit: int) -> int | None:
        return log.frontier(topic, commit) if commit else None

    records: list[Record] = [r for batch in log.read("users") for r in batch.records()]
    known = changes_of(
        step.table,
        records,
        events_in(log, "users"),
        frontier,
    )
    events = events_read(step.input, log)
    return looked_up(step, events, known.versions, frontier, log.head()), known


def last_of_each(step: hr.Enriched, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last published version of each row that can be amended."""
    if step.amend is None:
        return rows
    last: dict[str, dict[str, Any]] = {}
    for row in rows:
        assert row["row"] not in last or last[row["row"]]["revision"] < row["revision"]
        last[row["row"]] = row
    return list(last.values())


def check(step: hr.Enriched, results: Results, topic: str = "out") -> tuple[Lookups, Changes]:
    """Check that the last published rows are the oracle's, and that every row is accounted for."""
    found, known = meant(step, results)
    rows, meant_rows = counted(last_of_each(step, results.topic(topic))), counted(found.rows)
    extra, missing = rows - meant_rows, meant_rows - rows
    assert rows == meant_rows, (list(extra.items())[:3], list(missing.items())[:3])
    law = results.law(topic)
    assert law.holds
    assert law.waiting == found.waiting
    assert law.dead == len(found.dead) + len(known.dead)
    assert law.tombstones == known.tombstones
    assert law.counted == len(found.rows) + len(known.versions)
    letters = results.topic(f"{results.app}.dead")
    reasons = Counter(letter["reason"] for letter in letters if letter["step"] == topic)
    assert reasons == Counter(reason for _, reason in [*found.dead, *known.dead])
    return found, known


REACHED = (
    "published",
    "waiting",
    "unknown",
    "dead",
    "versions",
    "tombstones",
    "known",
    "late changes",
    "amended",
)


def explore(examples: int, *, fresh: bool = False) -> Counter[str]:
    seen: Counter[str] = Counter()

    @quickly(examples, fresh=fresh)
    @given(
        scripts(),
        changes(),
        st.randoms(use_true_random=False),
        st.sampled_from([1, 3, 1_000]),
        st.sampled_from([1, 2]),
        st.sampled_from(["left", "inner"]),
        st.sampled_from([0, 40, 10_000]),
        st.sampled_from(["id", "id", None]),
        st.sampled_from([None, None, 0, 30, 1_000]),
        st.sampled_from([0, lookup.FEW]),
    )
    def law(
        one: list[Commit],
        other: list[Change],
        random: Random,
        commits: int,
        parts: int,
        how: str,
        wait: int,
        key: str | None,
        amend: int | None,
        few: int,
    ) -> None:
        app, step = declare(how, wait, parts, key, amend)
        era = next_era(seen)
        with scripted_log(start=NOW + era) as log, pytest.MonkeyPatch.context() as patch:
            patch.setattr(lookup, "FEW", few)
            for topic in app.topics.values():
                log.log.ensure_topic(topic)
            rows, versions = list(one), list(other)
            while rows or versions:
                if versions and (not rows or random.random() < 0.5):
                    change(log, app, moved(versions.pop(0), era))
                else:
                    write(log, app, [rows.pop(0)], era=era)
                if random.random() < 0.2:
                    log.run(app, spark=shuffling(parts), max_commits=commits)
            results = log.run(app, spark=shuffling(parts), max_commits=commits)
            found, known = check(step, results)
            seen["runs"] += 1
            seen["published"] += len(found.rows)
            seen["known"] += sum(row["user_shout"] is not None for row in found.rows)
            seen["waiting"] += found.waiting
            seen["amended"] += len(results.topic("out")) - len(found.rows)
            seen["unknown"] += found.unknown
            seen["dead"] += len(found.dead) + len(known.dead)
            seen["versions"] += len(known.versions)
            seen["tombstones"] += sum(version.row is None for version in known.versions)
            newest = 0
            for version in sorted(known.versions, key=lambda v: v.commit):
                seen["late changes"] += version.valid < newest
                newest = max(newest, version.valid)

    law()
    print(dict(seen))
    return seen


def test_what_is_looked_up_is_the_oracles() -> None:
    explore(3, fresh=True)


@pytest.mark.parametrize("amend", [0, 1])
def test_a_deletion_before_the_table_has_a_time_amends_as_any_other(amend: int) -> None:
    app, step = declare("left", 0, 1, "id", amend)
    with scripted_log(start=NOW) as log:
        for topic in app.topics.values():
            log.log.ensure_topic(topic)
        write(log, app, [[{"k": "b", "n": 1, "tags": ["x"], "at": BEGIN}]])
        change(log, app, [{"key": "b"}])
        found, _ = check(step, log.run(app, spark=shuffling(1)))
    assert [row["revision"] for row in found.rows] == [1 + amend]


@pytest.mark.slow
def test_what_is_looked_up_is_the_oracles_at_length() -> None:
    seen = explore(150)
    assert all(seen[kind] for kind in REACHED), seen
