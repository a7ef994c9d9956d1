"""What becomes of a step's results inside of the transaction that stores them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import apsw
import pyarrow as pa

from headrace.operators.window.emission.policy import Passage
from headrace.plan.batch import Portion
from headrace.plan.crash_points import Reach
from headrace.plan.law import Law
from headrace.store.outbox import put


class Keeper(ABC):
    """Keeps the results of one step, and publishes what is to be told of them."""

    schema: pa.Schema
    """The columns of what a reader sees, or of what is published."""

    def create(self, db: apsw.Connection) -> None:  # noqa: B027 - some keep nothing
        """Make its tables, when the step is new."""

    def enter(self, db: apsw.Connection, frontier: int | None, spoken: Sequence[str]) -> None:  # noqa: B027
        """Make ready, given how far time is and the topics that were written to already."""

    @abstractmethod
    def store(self, db: apsw.Connection, portion: Portion, passage: Passage) -> Law:
        """Keep a portion with which the frontier passes on; returns what it alone can tell.

        That is how many rows were counted, and whatever else became of rows in its hands.
        """

    def overlapping(self, db: apsw.Connection, sessions: pa.Table) -> pa.Table:
        """The sessions it has that overlap any of these."""
        raise NotImplementedError

    def versions(self, db: apsw.Connection) -> pa.Table:
        """The versions it has of a table."""
        raise NotImplementedError

    def frontiers(self, db: apsw.Connection) -> Mapping[str, int]:
        """The frontier of each topic with the stored results, where it is kept."""
        return {}

    def held(self, db: apsw.Connection, keys: pa.Table) -> pa.Table:
        """The groups of duplicates that it has of these keys."""
        raise NotImplementedError


class RowKeeper(Keeper):
    """Publishes rows, each by itself."""

    def __init__(self, topic: str, schema: pa.Schema, reach: Reach) -> None:
        self.schema = schema
        self._topic = topic
        self._reach = reach

    def store(self, db: apsw.Connection, portion: Portion, passage: Passage) -> Law:
        stored = sum(put(db, self._topic, some) for some in portion.slices())
        self._reach("stored panes")
        return Law(counted=stored if portion.delivered is None else portion.delivered)
