"""The results of windows in a batch, on their way from Spark to the store."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.plan.batch import Payload, Shapes


@dataclass(frozen=True)
class PaneShapes(Shapes):
    """The columns of panes, and of sessions in parts if there are any."""

    sessions: pa.Schema | None = None


@dataclass(frozen=True)
class Regrouped:
    """The sessions that the rows of a batch are in, as parts, and those they were made of."""

    parts: pa.Table
    replaced: pa.Table


@dataclass(frozen=True)
class Panes(Payload):
    """The panes that a batch has changed, each as it is now."""

    rows: pa.Table
    sessions: Regrouped | None = None

    @property
    def results(self) -> int:
        return int(self.rows.num_rows)
