"""Load files for `produce`, and count their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from headrace.backfill.chunks import Refused
from headrace.backfill.finding import FoundFile
from headrace.backfill.loading import FILES, Loaded, Loader
from headrace.cli.producing import BadLines, Tally
from headrace.errors import InvalidRecord
from headrace.log import Acks, Log, Receipt
from headrace.wording import many


@dataclass
class FileTally(Tally):
    """The outcome of the files so far."""

    unit: ClassVar[str] = "row"
    topic: str = ""
    name: str = ""
    """The file that is loaded now."""
    done: int = 0
    """Files that are in the log."""

    def loader(self, log: Log, topic: str, *, acks: Acks, job: str) -> Loader:
        """A loader that reports its commits here."""
        self.topic = topic
        return Loader(log, topic, acks=acks, job=job, committed=self._committed)

    def _committed(self, receipt: Receipt) -> None:
        acks = tuple(ack for ack in receipt.acks if ack.topic != FILES)
        self.add(Receipt(receipt.commit, receipt.timestamp, acks), 0)
        self.sent = self.records

    def where(self) -> str:
        """A sentence that says which rows are in the log."""
        if not self.name:
            return "No row is in the log"
        said = f"No row of {self.name} is in the log"
        if self.line_in_log:
            said = f"{self.name} is in the log up to row {self.line_in_log:,}"
        return f"{said}, after {many(self.done, 'whole file')}" if self.done else said


def load_files(loader: Loader, files: Sequence[FoundFile], tally: FileTally, bad: BadLines) -> None:
    """Load files one after the other."""
    before = 0
    for file in files:
        loaded = Loaded(file)

        def refuse(row: Refused, path: str = file.path) -> None:
            entry = {"file": path, "line": row.number, "error": row.error.message}
            bad.write(entry | {"text": row.text})
            tally.skipped += 1

        tally.name = file.path
        try:
            for _ in loader.load(loaded, refuse if bad.wanted else None):
                tally.bytes = before + int(loaded.share * file.size)
                tally.line_in_log = loaded.row
        except InvalidRecord as error:
            if {"row", "line"} & error.details.keys():
                tally.advice = "Add --skip-bad FILE, and the same command continues without it"
            raise
        finally:
            tally.already += loaded.already
            tally.line_in_log = loaded.row
        before += file.size
        tally.bytes = before
        tally.done += 1
