"""The uncounted rows of a batch, found by the tasks that read it and handed to the driver in files.

A log that judges rows one by one knows late rows and dead letters only when somebody reads them. A
task that reads a batch sees them anyway, and writes them beside its rows. Its file is named by the
offsets that it has read, so a task that runs twice writes the same file. If the driver does not
find one, it reads the rows again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.files import write_whole
from headrace.log.dead_letter import DEAD_LETTER
from headrace.plan.log_rows import Span
from headrace.plan.uncounted import Uncounted

_COUNTS = b"headrace.counts"


@dataclass(frozen=True)
class SideOutput:
    """The files of one step."""

    folder: Path

    def write(self, topic: str, span: Span, found: Uncounted) -> None:
        """Write what a task has found."""
        sink = pa.BufferOutputStream()
        counts = json.dumps({"tombstones": found.tombstones}).encode()
        letters = DEAD_LETTER.with_metadata({_COUNTS: counts})
        with pa.ipc.new_stream(sink, letters) as writer:
            for table in found.dead:
                writer.write_table(table)
        if found.candidates:
            with pa.ipc.new_stream(sink, found.candidates[0].schema) as writer:
                for batch in found.candidates:
                    writer.write_batch(batch)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._file(topic, span), sink.getvalue())

    def read(self, topic: str, spans: Sequence[Span]) -> Uncounted | None:
        """The findings of all tasks of a batch; None if a file is missing."""
        found = Uncounted()
        for span in spans:
            try:
                data = pa.BufferReader(self._file(topic, span).read_bytes())
            except OSError:
                return None
            reader = pa.ipc.open_stream(data)
            letters = reader.read_all()
            found.tombstones += json.loads(reader.schema.metadata[_COUNTS])["tombstones"]
            found.dead += [letters.replace_schema_metadata()] if letters.num_rows else []
            if data.tell() < data.size():
                found.candidates += pa.ipc.open_stream(data).read_all().to_batches()
        return found

    def clear(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, topic: str, span: Span) -> Path:
        return self.folder / f"{topic}.{span.partition}.{span.start}-{span.end}"
