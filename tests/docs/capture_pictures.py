"""The picture of dual writes beside capture, from a run of `tests.recovery.dual_writes`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.docs.svg import BLUE, FAINT, GREY, RED, Sheet

FOUND = Path(__file__).parents[2] / "docs" / "pictures" / "dual-writes.json"
LEFT, SCALE, ROW = 250, 34, 44

FAULTS = {
    "killed": "killed between the writes",
    "down": "the store is down",
    "overtaken": "overtaken by the next write",
    "rolled back": "the transaction rolls back",
}


def dual_writes() -> Sheet:
    """Rows that differ from the database, by fault: written directly, and captured."""
    found = json.loads(FOUND.read_text())
    sheet = Sheet(720, 92 + ROW * len(FAULTS), "Dual writes and capture under the same faults")
    sheet.legend(16, 26, [(RED, "the service writes to both"), (BLUE, "captured")])
    sheet.text(704, 26, "rows that differ from the database", size=12, colour=GREY, anchor="end")
    for number, (fault, words) in enumerate(FAULTS.items()):
        top = 52 + ROW * number
        sheet.text(LEFT - 14, top + 20, words, anchor="end")
        sheet.line([(LEFT, top - 4), (LEFT, top + ROW - 8)], FAINT, thick=1)
        for up, way, colour in ((0, "direct", RED), (18, "captured", BLUE)):
            rows = found[way].get(fault, 0)
            if rows:
                sheet.bar(LEFT, top + up, rows * SCALE, 14, colour)
            sheet.text(LEFT + rows * SCALE + 8, top + up + 12, str(rows), size=12, colour=colour)
    totals = " and ".join(f"{found[way]['different']} rows" for way in ("direct", "captured"))
    words = f"In all {totals} of {found['direct']['rows']}, after {found['writes']:,} writes"
    sheet.text(LEFT, 72 + ROW * len(FAULTS), words, size=12, colour=GREY)
    return sheet
