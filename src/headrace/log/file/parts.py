"""Parts of a commit beside its records, in the same transaction of the catalog."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import apsw

from headrace.log.roles import CommitPart
from headrace.log.state import Ack


class FilePart(CommitPart):
    """A condition on a commit of the embedded log, or state that changes with it.

    `lasting` is True for state that a recovery does not take back with the commit's records. Such
    a commit is always synced.
    """

    lasting = False

    def check(self, db: apsw.Connection) -> None:
        """Raise if the commit must not be made. Called with the write lock held."""

    @abstractmethod
    def record(
        self, db: apsw.Connection, commit: int | None, time: int, acks: Sequence[Ack]
    ) -> None:
        """Change the state. `commit` is None for a commit without records."""
