"""The changes of joined tables in a batch, on their way from Spark to the store."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.plan.batch import Payload, Shapes


@dataclass(frozen=True)
class TableShapes(Shapes):
    """The columns of joined rows, and of each table."""

    tables: tuple[pa.Schema, ...]


@dataclass(frozen=True)
class TableChanges(Payload):
    """The new versions of each table."""

    tables: tuple[pa.Table, ...]
