"""Rows that differ, as people read them: what each should be, what it is, and who wrote it last."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.application.verify.compare import KINDS, Kind, Suspects
from headrace.application.verify.hops import Cut, Hop
from headrace.application.verify.result import Difference, HopResult, Write
from headrace.application.verify.sides import Side
from headrace.schema.python_rows import to_rows
from headrace.schema.row_hashes import row_hashes
from headrace.store.sqlite.difference import Change, Diff

_RECOMPUTED: dict[str, Kind] = {"added": "missing", "removed": "extra", "changed": "different"}


def differences(hop: Hop, cut: Cut, suspects: Suspects, limit: int) -> list[Difference]:
    """Some rows that differ, as they are on both sides, and the commit that last wrote each."""
    if not len(suspects) or limit <= 0:
        return []
    some = suspects.only(np.arange(len(suspects)) < limit)
    mine, theirs = (_by_hash(side, some.keys) for side in (cut.one, cut.other))
    writes: dict[int, Write] = hop.last_writes(some.keys)
    made = []
    for hash, key, number in zip(some.hashes, to_rows(some.keys), some.kinds, strict=True):
        expected, found = mine.get(int(hash), {}), theirs.get(int(hash), {})
        kind = KINDS[int(number)]
        names = [n for n in (expected or found) if n not in key]
        if kind == "different":
            names = [n for n in names if not _same(expected.get(n), found.get(n))]
        made.append(
            Difference(
                kind,
                key,
                {n: expected[n] for n in names if n in expected},
                {n: found[n] for n in names if n in found},
                writes.get(int(hash)),
            )
        )
    return made


def _by_hash(side: Side, keys: pa.Table) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for batch in side.find(keys):
        hashes = row_hashes(batch.select(side.key))
        found.update(zip(map(int, hashes), to_rows(batch), strict=True))
    return found


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def of_diff(diff: Diff, one: str, other: str, commit: int) -> HopResult:
    """The differences of a rebuilt view as those of a hop: what is added was missing."""
    return HopResult(
        one,
        other,
        rows=diff.added + diff.changed + diff.same,
        rows_other=diff.removed + diff.changed + diff.same,
        missing=diff.added,
        extra=diff.removed,
        different=diff.changed,
        commit=commit,
        rows_differing=tuple(map(_of_change, diff.rows)),
    )


def _of_change(change: Change) -> Difference:
    # In a diff, what is there now comes before what was computed.
    return Difference(_RECOMPUTED[change.kind], change.key, change.after, change.before)
