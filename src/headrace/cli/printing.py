"""Records on standard output: JSON lines, or readable lines."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from headrace.cli.records import RecordFormat, headers_json
from headrace.log import Batch, OnceBy, Record, Topic

_DIM, _KEY, _END = "\x1b[2m", "\x1b[36m", "\x1b[0m"

_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_VISIBLE |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
"""Escaped control characters: a record cannot break its line or control the terminal."""


class Printer:
    """Printer of a topic's batches, up to a limit. With `once`, it skips repeated records."""

    def __init__(
        self,
        topic: Topic,
        *,
        json: bool,
        headers: bool,
        limit: int | None,
        once: OnceBy | None = None,
    ) -> None:
        self._format = RecordFormat(topic)
        self._line = self._format.line if json else self._readable
        self._headers = headers
        self._left = limit
        self._once = once
        # Coloured by hand: rich takes longer for a line than the log for a record.
        self._coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    @property
    def done(self) -> bool:
        """True if the limit is reached."""
        return self._left == 0

    def room(self, page: int) -> int:
        """The number of records to request: a page, or what the limit leaves."""
        return page if self._left is None else min(page, self._left)

    def show(self, batches: Iterable[Batch]) -> None:
        """Print records up to the limit."""
        for batch in batches:
            records = batch.records(as_text=True)
            if self._once is not None:
                records = filter(self._once.is_first, records)
            if self._left is not None:
                records = itertools.islice(records, self._left)
            lines = list(map(self._line, records))
            if self._left is not None:
                self._left -= len(lines)
            if lines:
                _write("\n".join(lines) + "\n")

    def flush(self) -> None:
        """Flush standard output."""
        sys.stdout.flush()

    def _readable(self, record: Record) -> str:
        place = f"{record.partition}/{record.offset}"
        time = f"{record.timestamp:%Y-%m-%d %H:%M:%S}.{record.timestamp.microsecond // 1000:03d}Z"
        key = "-" if record.key is None else _text(self._format.key(record))
        value = "(tombstone)" if record.value is None else _text(self._format.value(record))
        extra = ""
        if self._headers and record.headers:
            extra = "  " + " ".join(f"{_text(n)}={_text(v)}" for n, v in headers_json(record))
        if not self._coloured:
            return f"{place}  {time}  {key}  {value}{extra}"
        shown = f"{_DIM}{value}{_END}" if record.value is None else value
        return f"{_DIM}{place:>8}  {time}{_END}  {_KEY}{key}{_END}  {shown}{_DIM}{extra}{_END}"


def _write(text: str) -> None:
    """Write a whole text: under PYTHONUNBUFFERED, one write may take only a part of it."""
    left = memoryview(text.encode())
    while left:
        left = left[sys.stdout.buffer.write(left) :]


def _text(value: Any) -> str:
    text: str = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else text.translate(_VISIBLE)
