"""Load files into a topic: each row exactly once, however often a load is killed and repeated.

Each file has a producer of its own, whose id is derived from its path and the topic, so that two
processes cannot load it at once. With each chunk of rows, the same transaction writes the position
in the file to the topic `_headrace.files`, and a load continues from there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

from headrace.backfill.chunks import Refuse, Refused
from headrace.backfill.finding import FoundFile
from headrace.backfill.reading import chunks_of
from headrace.errors import LogBusy, UserError
from headrace.log import Acks, Log, Producer, Receipt, Topic, TopicSettings, Transaction

FILES = "_headrace.files"
"""The topic of positions: the newest record of a producer's id says how far its file is loaded."""


@dataclass(frozen=True)
class Reached:
    """The position in a file: the number of its last row that is in the log."""

    topic: str
    file: str
    sha256: str
    row: int = 0
    records: int = 0
    complete: bool = False
    sequence: int = -1
    """The sequence number of the commit."""


@dataclass
class Loaded:
    """The progress of a file. `share` is the part that is read, from 0 to 1."""

    file: FoundFile
    records: int = 0
    already: int = 0
    refused: int = 0
    row: int = 0
    """The number of the last row that is in the log."""
    share: float = 0.0


class Loader:
    """Loads files into one topic. Another `job` loads a file once more."""

    def __init__(
        self,
        log: Log,
        topic: str,
        *,
        job: str = "",
        acks: Acks = "synced",
        committed: Callable[[Receipt], None] = lambda receipt: None,
    ) -> None:
        self._log = log
        self._topic = log.topic(topic).topic
        # A topic that is deleted and created again is another one.
        self._scope = [log.topic_ids([topic])[topic], job]
        self._acks = acks
        self._committed = committed
        log.ensure_topic(Topic(FILES, 1, settings=TopicSettings(cleanup="compact")))
        self._positions: dict[str, Reached] = {}

    def load(self, loaded: Loaded, refuse: Refuse | None = None) -> Iterator[Loaded]:
        """Load a file; yield its progress after each chunk.

        The first row that does not fit raises an error. With `refuse`, such rows are skipped, and
        it is called with each. A file that is complete is then read again, to find them.
        """
        file = loaded.file
        stamp = file.stamp
        begun = Reached(self._topic.name, os.path.realpath(file.path), file.digest())
        _check_unchanged(file, stamp)
        with self._log.producer(id=self._id(begun.file), acks=self._acks) as producer:
            here = self._reached(producer, begun)
            loaded.already, loaded.row = here.records, here.row
            if here.sha256 != begun.sha256:
                raise _changed(here)
            if here.complete and refuse is None:
                loaded.share = 1.0
                return
            for chunk, share in chunks_of(file, self._topic, _refusing(loaded, refuse)):
                transaction = producer.transaction()
                added = chunk.add(transaction, here.row)
                _check_unchanged(file, stamp)
                if not added:
                    transaction.abort()
                else:
                    here = replace(here, row=chunk.last, records=here.records + added)
                    self._commit(producer, transaction, here)
                    loaded.records, loaded.row = loaded.records + added, chunk.last
                loaded.share = share
                yield loaded
            _check_unchanged(file, stamp)
            if not here.complete:
                self._commit(producer, producer.transaction(), replace(here, complete=True))
        loaded.share = 1.0

    def _id(self, path: str) -> str:
        name = json.dumps([*self._scope, path])
        return f"file.{hashlib.sha256(name.encode()).hexdigest()[:32]}"

    def _commit(self, producer: Producer, transaction: Transaction, here: Reached) -> None:
        """Commit rows and their position, or neither."""
        position = replace(here, sequence=producer.next_sequence)
        transaction.send(FILES, json.dumps(asdict(position)), producer.id)
        if (receipt := transaction.commit()) is not None:
            self._committed(receipt)

    def _reached(self, producer: Producer, begun: Reached) -> Reached:
        """The position in a file."""
        last = producer.next_sequence - 1
        if last < 0:
            return begun
        here = self._positions.get(producer.id)
        if here is None or here.sequence != last:
            self._positions = self._read_positions()
            here = self._positions.get(producer.id)
        if here is None or here.sequence != last:
            raise LogBusy(
                f"The position in {begun.file} cannot be read: an open transaction hides the last "
                f"records of topic {FILES!r}",
                hint="It ends at its timeout: try again in a minute",
            )
        return here

    def _read_positions(self) -> dict[str, Reached]:
        return {
            record.key.decode(): Reached(**json.loads(record.value))
            for batch in self._log.read(FILES)
            for record in batch.records()
            if record.value is not None
        }


def _changed(here: Reached) -> UserError:
    return UserError(
        f"{here.file} has changed since {here.records:,} of its rows were loaded into topic "
        f"{here.topic!r}",
        hint="Restore the file as it was, or put new rows into a file of another name. To load the "
        "whole file once more, choose a --producer-id",
    )


def _check_unchanged(file: FoundFile, stamp: tuple[int, int]) -> None:
    if file.stamp != stamp:
        raise UserError(
            f"{file.path} was changed while it was read",
            hint="Run the command again once nobody writes to it",
        )


def _refusing(loaded: Loaded, refuse: Refuse | None) -> Refuse:
    """Count refused rows, or raise an error at the first."""

    def refused(row: Refused) -> None:
        if refuse is None:
            unit = "line" if loaded.file.kind == "jsonl" else "row"
            error = row.error
            raise type(error)(
                f"{loaded.file.path}, {unit} {row.number}: {error.message}",
                hint=error.hint,
                **error.details | {unit: row.number},
            )
        loaded.refused += 1
        refuse(row)

    return refused
