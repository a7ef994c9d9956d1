"""The last verification of each view: what was compared with what, and the rows that differ."""

from __future__ import annotations

from typing import Any

import htpy as h
from fastapi import APIRouter
from htpy import Node

from headrace.application.verify.result import Difference, HopResult, Verified, last_verified
from headrace.clock import SECOND
from headrace.log import Log
from headrace.studio.live.cells import path_of
from headrace.studio.live.drawn import clock_time
from headrace.studio.live.handles import Opened
from headrace.studio.pages import badge, failure, section, table
from headrace.wording import many, span

router = APIRouter()

_ROWS = 20
"""Rows of a hop that differ and are shown."""


@router.get("/api/verified", tags=["stores"])
def verified_json(opened: Opened) -> list[dict[str, Any]]:
    """The last verification of each view: its hops, and how many rows differ on each."""
    return [
        {
            "app": found.app,
            "view": found.view,
            "at": found.at,
            "proven": found.proven,
            "hops": [
                {
                    "from": hop.one,
                    "to": hop.other,
                    "rows": hop.rows,
                    "missing": hop.missing,
                    "extra": hop.extra,
                    "different": hop.different,
                    "on_the_way": hop.moving,
                    "commit": hop.commit,
                    "whole": hop.whole,
                    "error": hop.error or None,
                }
                for hop in found.hops
            ],
        }
        for found, _ in last_verified(opened.log.home)
    ]


def verifications(log: Log) -> Node:
    """A table of the hops of each view that was verified, and of the rows that differ."""
    found = [each for each, _ in last_verified(log.home)]
    return section(
        "Last verification",
        not found
        and h.p(".empty")["No view was verified yet: ", h.code["headrace verify MODULE:APP"]],
        [[_hops(each), _troubles(each)] for each in found],
        id="verified",
    )


def _hops(found: Verified) -> Node:
    name = f"{found.app}.{found.view}"
    return [
        h.h3[h.a(href=path_of(found.app, found.view))[name], " ", _verdict(found)],
        table(
            ("from", "to", "result", "rows", "on the way", "as of commit", "took"),
            [
                (
                    hop.one,
                    hop.other,
                    _result(hop),
                    "–" if hop.error else f"{hop.rows:,}",
                    "–" if hop.error else f"{hop.moving:,}",
                    "–" if hop.commit is None else f"{hop.commit:,}",
                    span(hop.took / SECOND),
                )
                for hop in found.hops
            ],
            numeric=("rows", "on the way", "as of commit", "took"),
            caption=f"Each hop of {name} from the database to a store, {clock_time(found.at)}.",
        ),
    ]


def _verdict(found: Verified) -> Node:
    if found.differences:
        return badge(many(found.differences, "difference"), "bad")
    return badge("proven", "good") if found.proven else badge("not compared whole", "warn")


def _troubles(found: Verified) -> Node:
    return [
        [
            hop.error
            and failure(f"{hop.one} and {hop.other} were not compared: {hop.error}", hop.hint),
            bool(hop.rows_differing) and _differences(found, hop),
        ]
        for hop in found.hops
    ]


def _result(hop: HopResult) -> Node:
    if hop.error:
        return badge("not compared", "warn")
    if hop.differences:
        return badge(many(hop.differences, "difference"), "bad")
    return badge("equal" if hop.whole else "changed rows equal", "good")


def _differences(found: Verified, hop: HopResult) -> Node:
    return table(
        ("difference", "key", "should be", "is", "commit"),
        [
            (
                badge(each.kind, "bad"),
                _values(each.key),
                _values(each.expected),
                _values(each.found),
                _commit(each),
            )
            for each in hop.rows_differing[:_ROWS]
        ],
        numeric=("commit",),
        caption=f"{found.app}.{found.view}: {hop.one} → {hop.other}. The commit is the last that "
        "wrote the row.",
    )


def _values(row: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items()) or "–"


def _commit(each: Difference) -> str:
    return "–" if each.write is None else f"{each.write.commit:,}"
