"""The committer of the embedded log's producers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.errors import MisusedHandle
from headrace.log.committer import Committer, Make
from headrace.log.declared import TopicRow
from headrace.log.file.appender import Appender, StaleTopic
from headrace.log.file.catalog import Catalog, one
from headrace.log.file.identity import Identity, earlier_receipt
from headrace.log.file.parts import FilePart
from headrace.log.file.topics import find_topic
from headrace.log.positions import GroupOffsets
from headrace.log.roles import CommitPart
from headrace.log.state import Receipt


class FileCommitter(Committer):
    """Commits to the embedded log. Readers see all of a commit or nothing."""

    def __init__(
        self,
        catalog: Catalog,
        appender: Appender,
        after_roll: Callable[[set[int]], None],
        *,
        id: str | None,
        synced: bool,
    ) -> None:
        super().__init__(id=id)
        self._catalog = catalog
        self._appender = appender
        self._after_roll = after_roll
        self._synced = synced
        self._epoch = 0
        self._sequence: int | None = 0
        if id is not None:
            self._register()

    @property
    def home(self) -> str:
        return str(self._catalog.folder.resolve())

    @property
    def next_sequence(self) -> int:
        if self._sequence is None:
            with self._catalog.reading() as db:
                known = one(db, "SELECT sequence FROM producer WHERE id = ?", self.id)
            self._sequence = 0 if known is None else known[0] + 1
        return self._sequence

    @property
    def last_receipt(self) -> Receipt | None:
        with self._catalog.reading() as db:
            receipt = earlier_receipt(db, Identity(self.id, self._epoch, self.next_sequence - 1))
        return None if receipt is None or receipt.commit is None else receipt

    def doubt(self) -> None:
        self._sequence = None

    def check_part(self, part: CommitPart) -> None:
        if not isinstance(part, FilePart):
            raise MisusedHandle(
                f"{part!r} is not a part of commits of this log",
                hint="Make it with a method of the same log",
            )

    def commit(
        self,
        make: Make,
        sequence: int,
        offsets: GroupOffsets | None = None,
        parts: Sequence[CommitPart] = (),
        *,
        whole: bool = False,
    ) -> Receipt:
        mine = [part for part in parts if isinstance(part, FilePart)]
        identity = Identity(self.id, self._epoch, sequence)
        while True:
            try:
                receipt, closed = self._appender.commit(
                    make(), synced=self._synced, identity=identity, offsets=offsets, parts=mine
                )
                break
            except StaleTopic as stale:
                self.forget(stale.topic.name)
        self._sequence = max(sequence + 1, self._sequence or 0)
        if closed:
            self._after_roll(closed)
        return receipt

    def find_topic(self, name: str) -> TopicRow:
        with self._catalog.reading() as db:
            return find_topic(db, name)

    def records_in(self, topic: TopicRow) -> int:
        with self._catalog.reading() as db:
            found = one(db, "SELECT sum(end) FROM partition WHERE topic = ?", topic.id)
        return int(found[0] or 0) if found else 0

    def _register(self) -> None:
        """Start a new epoch of the id, which fences out any older producer."""
        with self._catalog.writing(synced=True) as db:
            db.execute(
                "INSERT INTO producer VALUES (?, 1, -1, NULL, 0) "
                "ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1",
                (self.id,),
            )
            known = one(db, "SELECT epoch, sequence FROM producer WHERE id = ?", self.id)
        assert known is not None
        self._epoch, self._sequence = known[0], known[1] + 1
