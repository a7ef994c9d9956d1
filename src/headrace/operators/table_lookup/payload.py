"""The results of lookups in a batch, on their way from Spark to the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.plan.batch import Payload, Shapes
from headrace.plan.staging import Staged


@dataclass(frozen=True)
class LookupShapes(Shapes):
    """The columns of rows, of table versions, and of rows that may be amended."""

    versions: pa.Schema
    amendable: pa.Schema


@dataclass(frozen=True)
class LookedUp(Payload):
    """Rows with their table columns, and the new versions of the table."""

    rows: Staged
    versions: pa.Table
    frontiers: Mapping[str, int]
    """The frontier of each topic at the end of the batch."""

    def remove(self) -> None:
        self.rows.remove()
