"""The law of conservation: every row that was read is accounted for.

Each term comes from its own place: `rows` from the log's offsets, `tombstones`, `dead` and `late`
from what was stored of them, `filtered` and `exploded` from counters at the very steps, and
`counted` from the difference that a batch makes to the rows that the view says it counts, and
`duplicates` from Spark, which decides that they are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from headrace.errors import LawBroken

NOT_STORED = (
    "Nothing of this batch was stored. This is a fault of headrace: please report it, with the "
    "pipeline"
)


@dataclass(frozen=True)
class Law:
    """What became of the rows of a batch, or of all batches together.

    Windows may overlap: `pairs` counts each row once for every window it is in, and so do
    `counted`, `late` and `duplicates`. Without overlap, `pairs` is the number of rows that came so
    far. `waiting` are those more, or fewer, that wait than before: for a table, or to be told as
    the last of several. `compacted` are rows of a table that were gone before they were read.
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
        """The rows that are left to be counted after what is done to each of them by itself."""
        gone = self.tombstones + self.dead + self.filtered + self.waiting + self.compacted
        return self.rows - gone + self.exploded

    @property
    def holds(self) -> bool:
        told = self.counted + self.late + self.duplicates
        return self.pairs == told and self.pairs >= self.passed

    def __add__(self, other: Law) -> Law:
        return Law(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

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
        """Return if the law holds. It is called before a batch is committed."""
        if not self.holds:
            raise LawBroken(
                f"Step {step!r} cannot account for every row: {self}",
                hint=NOT_STORED,
                law={f.name: getattr(self, f.name) for f in fields(self)},
            )
