"""Tables and JSON of verified views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.cli.output import moment, plain, show, table
from headrace.cli.view_tables import row_json
from headrace.clock import SECOND
from headrace.wording import count, many, span

if TYPE_CHECKING:
    from headrace.application.verify.result import Difference, HopResult, Verified

_STYLES = {"missing": "red", "extra": "yellow", "different": "red"}


def show_verified(found: Verified) -> None:
    """Print the hops of a view, and the rows that differ."""
    lines = table(
        "from", "to", ">rows", ">ranges", ">missing", ">extra", ">different", ">on the way",
        ">as of commit", ">took", title=f"{found.app}.{found.view}",
    )  # fmt: skip
    for hop in found.hops:
        if hop.error:
            lines.add_row(plain(hop.one), plain(hop.other), plain("not compared", "red"))
            continue
        differs = (hop.missing, hop.extra, hop.different)
        lines.add_row(
            plain(hop.one),
            plain(hop.other),
            _rows(hop),
            count(hop.ranges) if hop.ranges else "-",
            *(plain(count(number), "red" if number else "") for number in differs),
            count(hop.moving),
            count(hop.commit),
            span(hop.took / SECOND),
        )
    show(lines)
    for hop in found.hops:
        if hop.rows_differing:
            _show_rows(hop)


def told(found: Verified) -> Iterator[str]:
    """Notes on a verification for people."""
    for hop in found.hops:
        if hop.error:
            yield f"{hop.one} and {hop.other} were not compared: {hop.error}"
        if hop.hint:
            yield f"  → {hop.hint}"
    if found.repaired:
        yield f"Repaired {many(found.repaired, 'row')}"
    if found.proven:
        whole = all(hop.whole for hop in found.hops)
        what = "Every row is" if whole else "Every row that has changed is"
        yield f"{what} as it should be"
    elif found.differences:
        yield f"{many(found.differences, 'difference')}; --repair mends them"


def verified_json(found: Verified) -> dict[str, Any]:
    """A verification as JSON."""
    return {
        "app": found.app,
        "view": found.view,
        "at": moment(found.at),
        "proven": found.proven,
        "differences": found.differences,
        "repaired": found.repaired,
        "hops": [_hop_json(hop) for hop in found.hops],
    }


def _hop_json(hop: HopResult) -> dict[str, Any]:
    return {
        "from": hop.one,
        "to": hop.other,
        "rows": hop.rows,
        "rows_to": hop.rows_other,
        "ranges": hop.ranges,
        "ranges_differing": hop.differing,
        "missing": hop.missing,
        "extra": hop.extra,
        "different": hop.different,
        "on_the_way": hop.moving,
        "commit": hop.commit,
        "checksum": hop.checksum,
        "whole": hop.whole,
        "seconds": round(hop.took / SECOND, 3),
        "error": hop.error or None,
        "rows_differing": [_difference_json(row) for row in hop.rows_differing],
    }


def _difference_json(row: Difference) -> dict[str, Any]:
    write = row.write
    return {
        "difference": row.kind,
        "key": row_json(row.key),
        "expected": row_json(row.expected) or None,
        "found": row_json(row.found) or None,
        "commit": None if write is None else write.commit,
        "written_at": None if write is None else moment(write.at),
        "transaction": None if write is None else write.transaction,
    }


def _rows(hop: HopResult) -> str:
    if hop.rows == hop.rows_other:
        return count(hop.rows)
    return f"{count(hop.rows)} / {count(hop.rows_other)}"


def _show_rows(hop: HopResult) -> None:
    keys = list(dict.fromkeys(name for row in hop.rows_differing for name in row.key))
    lines = table("", *keys, "should be", "is", ">commit", title=f"{hop.one} → {hop.other}")
    for row in hop.rows_differing:
        written = "-" if row.write is None else count(row.write.commit)
        lines.add_row(
            plain(row.kind, _STYLES[row.kind]),
            *(plain(_text(row.key.get(name))) for name in keys),
            plain(_values(row.expected)),
            plain(_values(row.found)),
            written,
        )
    show(lines)
    left = hop.differences - len(hop.rows_differing)
    if left > 0:
        show(plain(f"and {many(left, 'more row')}"))


def _values(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in row.items()) or "-"


def _text(value: Any) -> str:
    return "null" if value is None else str(row_json({"": value})[""])
