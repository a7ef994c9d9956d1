"""Compare a view of joined tables with the oracle's."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import headrace as hr
from headrace.clock import to_micros
from headrace.log import Log
from headrace.operators.table_join.meaning import current, joined_tables
from headrace.oracle.tables import Changes, changes_of
from headrace.testing import Results
from tests.property.judging import events_in

Row = dict[str, Any]


def changes_in(table: hr.Table, log: Log) -> Changes:
    """The changes of a table in the log."""

    def frontier(topic: str, commit: int) -> int | None:
        return log.frontier(topic, commit) if commit else None

    name = table.topic
    records = [record for batch in log.read(name) for record in batch.records()]
    return changes_of(table, records, events_in(log, name), frontier)


def check(
    step: hr.TableJoin, results: Results, view: str = "joined", *, letters: bool = True
) -> Counter[str]:
    """Check that the view, its changelog, its law and its dead letters are the oracle's."""
    found = [changes_in(table, results.log) for table in step.tables]
    meant = joined_tables(step, [changes.versions for changes in found])
    rows = results.view(view)
    assert all(row.pop("_state") == "open" for row in rows)
    kept, expected = counted(rows), counted(meant)
    extra, missing = kept - expected, expected - kept
    assert kept == expected, (list(extra.items())[:3], list(missing.items())[:3])
    changes = check_changes(step, results, view, rows)
    law = results.law(view)
    assert law.holds
    assert law.counted == sum(len(changes.versions) for changes in found)
    if letters:
        check_letters(step, results, view, found)
    seen = Counter(rows=len(rows), dead=law.dead, changes=len(changes))
    seen["deletions"] = sum(change["op"] == "d" for change in changes)
    theirs = [name for link in step.links for _, name in link.from_table]
    (mine, *_) = step.first.key
    seen["alone"] = sum(row[mine] is None or all(row[n] is None for n in theirs) for row in rows)
    for changes_of_one in found:
        newest: dict[Any, Any] = {}
        seen["deleted"] += sum(v.row is None for v in current(changes_of_one.versions))
        for version in sorted(changes_of_one.versions, key=lambda v: v.commit):
            seen["late changes"] += version.order < newest.get(version.key, version.order)
            newest[version.key] = max(version.order, newest.get(version.key, version.order))
    return seen


def check_letters(step: hr.TableJoin, results: Results, view: str, found: list[Changes]) -> None:
    """Check that rows in no table are dead letters, or tombstones of unknown keys."""
    law = results.law(view)
    assert law.tombstones == sum(changes.tombstones for changes in found)
    letters = [row for row in results.topic(f"{results.app}.dead") if row["step"] == view]
    assert len(letters) == law.dead
    once = {table.topic: changes for table, changes in zip(step.tables, found, strict=True)}
    timeless = [r for changes in once.values() for _, r in changes.dead if r != "no key"]
    keyless = [r for changes in found for _, r in changes.dead if r == "no key"]
    assert Counter(letter["reason"] for letter in letters) == Counter([*timeless, *keyless])


def check_changes(step: hr.TableJoin, results: Results, view: str, rows: list[Row]) -> list[Row]:
    """Check that the changes add up to the view, and that each `before` is the previous row."""
    table: dict[str, Row] = {}
    changes: list[Row] = results.topic(f"{results.app}.{view}.changes")
    for change in changes:
        assert change["before"] == table.get(change["key"])
        if change["after"] is None:
            assert change["op"] == "d"
            del table[change["key"]]
        else:
            assert change["op"] == ("u" if change["before"] else "c")
            assert change["before"] is None or (
                change["before"]["revision"] < change["after"]["revision"]
            )
            table[change["key"]] = change["after"]
    after = [{**row, "_revision": row["revision"]} for row in table.values()]
    for row in after:
        del row["revision"]
    assert counted(after) == counted(rows)
    assert len({tuple(map(str, (row[k] for k in step.key))) for row in rows}) == len(rows)
    return changes


def counted(rows: list[Row]) -> Counter[str]:
    """Multiset of rows, regardless of column order."""
    return Counter(repr([(name, _plain(row[name])) for name in sorted(row)]) for row in rows)


def _plain(value: Any) -> Any:
    """Values as a view shows them: times and decimals as text, booleans as numbers."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value[:4].isdigit() and value[4:5] == "-":
        value = datetime.fromisoformat(value).replace(tzinfo=UTC)
    return to_micros(value) if isinstance(value, datetime) else value
