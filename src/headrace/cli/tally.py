"""The outcome of the lines that `produce` reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from headrace.errors import HeadraceError, UserError
from headrace.log import Receipt


@dataclass
class Offsets:
    """Offsets written to a partition: from `first` to `end`, `records` of them by us."""

    first: int
    end: int
    records: int


@dataclass
class Tally:
    """The outcome of the lines so far."""

    sent: int = 0
    bytes: int = 0
    records: int = 0
    skipped: int = 0
    already: int = 0
    line_in_log: int = 0
    refused: int = 0
    advice: str = ""
    partitions: dict[int, Offsets] = field(default_factory=dict)

    def add(self, receipt: Receipt, line: int) -> None:
        """Note that everything up to `line` is in the log."""
        self.line_in_log = line
        for ack in receipt.acks:
            here = self.partitions.setdefault(ack.partition, Offsets(ack.first, ack.end, 0))
            here.end = ack.end
            here.records += ack.end - ack.first
            self.records += ack.end - ack.first

    def where(self) -> str:
        """A sentence that says which lines are in the log."""
        said = "No line is in the log"
        if self.line_in_log:
            lines = "Line 1 is" if self.line_in_log == 1 else f"Lines 1 to {self.line_in_log} are"
            but = f" except {self.skipped} bad ones" if self.skipped else ""
            said = f"{lines} in the log{but}"
        return f"{said}; line {self.refused} was rejected" if self.refused else said


class BadLines:
    """The file for rejected lines, if the user wants to skip them."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._file = self._path.open("w", buffering=1, encoding="utf-8")
            except OSError as error:
                raise UserError(f"{self._path} cannot be written: {error.strerror}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def take(self, number: int, line: bytes, error: HeadraceError) -> bool:
        """True if bad lines are skipped; the line and its error are then in the file."""
        if self._file is None:
            return False
        text = line.decode(errors="replace").rstrip("\r\n")
        entry = {"line": number, "error": error.message, "text": text}
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        return True
