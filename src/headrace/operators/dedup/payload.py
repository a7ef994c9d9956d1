"""The results of deduplication in a batch, on their way from Spark to the store."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.plan.batch import Payload, Shapes


@dataclass(frozen=True)
class GroupShapes(Shapes):
    """The columns of rows, and of groups of duplicates."""

    groups: pa.Schema


@dataclass(frozen=True)
class Distinct(Payload):
    """The rows to publish, the groups that are new or changed, and the number of duplicates."""

    rows: pa.Table
    groups: pa.Table
    duplicates: int

    @property
    def results(self) -> int:
        return int(self.rows.num_rows)
