"""The results of windows in a batch, on their way from Spark to the store."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.plan.batch import Payload, Shapes


@dataclass(frozen=True)
class PaneShapes(Shapes):
    """The columns of panes, and of partial sessions if there are any."""

    sessions: pa.Schema | None = None


@dataclass(frozen=True)
class Regrouped:
    """The sessions of a batch's rows, as parts, and the sessions that they replace."""

    parts: pa.Table
    replaced: pa.Table


@dataclass(frozen=True)
class Panes(Payload):
    """The current values of the panes that a batch has changed."""

    rows: pa.Table
    sessions: Regrouped | None = None

    @property
    def results(self) -> int:
        return int(self.rows.num_rows)
