"""The law of conservation: every row that was read is accounted for.

Each term has its own source: `rows` the log's offsets; `tombstones`, `dead` and `late` the rows
that were stored; `filtered` and `exploded` counters at these steps; `counted` the change of the
row counts in the view; `duplicates` Spark, which detects them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from headrace.errors import LawBroken

NOT_STORED = (
    "Nothing of this batch was stored. This is a bug in headrace: please report it with the "
    "pipeline"
)


@dataclass(frozen=True)
class Law:
    """The account of all rows of a batch, or of all batches together.

    Windows may overlap: `pairs` counts each row once for every window it is in, and so do
    `counted`, `late` and `duplicates`. Without overlap, `pairs` equals `passed`. `waiting` is the
    change in the number of rows that wait: for a table, or for the last of several duplicates.
    `compacted` rows of a table were compacted before they were read.
    """

    rows: int = 0
    tombstones: int = 0
    dead: int = 0
    filtered: int = 0
    exploded: int = 0
    pairs: int = 0
    counted: int = 0
    late: int = 0
    waiting: int = 0
    compacted: int = 0
    duplicates: int = 0

    @property
    def passed(self) -> int:
        """The rows that are left to count after filters, explosions and dead letters."""
        gone = self.tombstones + self.dead + self.filtered + self.waiting + self.compacted
        return self.rows - gone + self.exploded

    @property
    def holds(self) -> bool:
        found = self.counted + self.late + self.duplicates
        return self.pairs == found and self.pairs >= self.passed

    def __add__(self, other: Law) -> Law:
        return Law(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Law) -> Law:
        return Law(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def __str__(self) -> str:
        taken = [
            ("filtered", self.filtered),
            ("dead", self.dead),
            ("tombstones", self.tombstones),
            ("waiting", self.waiting),
            ("compacted", self.compacted),
        ]
        given = f"{self.rows:,} rows" + (
            f" + {self.exploded:,} added by explode" if self.exploded else ""
        )
        rest = "".join(f" + {n:,} {what}" for what, n in taken if n or what == "dead")
        found = f"{self.counted:,} counted + {self.late:,} late"
        found += f" + {self.duplicates:,} duplicates" if self.duplicates else ""
        sign = "=" if self.holds else "≠"
        if self.pairs == self.passed:
            return f"{given} {sign} {found}{rest}"
        return f"{given} = {self.passed:,} passed{rest}; {self.pairs:,} in windows {sign} {found}"

    def check(self, step: str) -> None:
        """Check that the law holds, before a batch is committed."""
        if not self.holds:
            raise LawBroken(
                f"Step {step!r} cannot account for every row: {self}",
                hint=NOT_STORED,
                law={f.name: getattr(self, f.name) for f in fields(self)},
            )
