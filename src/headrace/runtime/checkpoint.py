"""The checkpoint of a step: Spark's own files, and a note of its owner."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.errors import ForeignCheckpoint, PipelineError
from headrace.files import sync_path, write_note
from headrace.plan.position import Position, Positions, batch_end, behind, commits_told
from headrace.plan.steps import Step, fingerprints

_IDENTITY = "headrace.json"
_SCHEMA_PATH = re.compile(r'"file:[^"]*(/state/\d+/_stateSchema/[^"]*)"')
"""The only absolute path that Spark writes into a checkpoint."""
_SHIFT = "shift"

SHIFT = 63_113_904_000_000_000
"""2,000 years in microseconds, which move the year 1 past 1970 and keep 9999 within limits."""


Owner = Sequence[Mapping[str, Any]]
"""The note about the owner of a checkpoint, and those of earlier versions."""


def owner_of(step: Step, begun: Positions) -> Owner:
    """The owner of a checkpoint: a step, its definition, and its first position."""
    places = {topic: position.to_json() for topic, position in begun.items()}
    return [{**note, "begun": places} for note in _definitions(step)]


def live_owner(step: Step) -> Owner:
    """The owner of a checkpoint in real time: a step and its definition."""
    return [{**note, "latency": "real-time"} for note in _definitions(step)]


def _definitions(step: Step) -> Iterator[dict[str, Any]]:
    for known in fingerprints(step):
        yield {"app": step.app, "step": step.name, "fingerprint": known}


class Checkpoint:
    """The checkpoint of one step."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        """True if the folder holds a checkpoint."""
        return (self.path / _IDENTITY).exists() or (self.path / "offsets").exists()

    def claim(self, owner: Owner) -> None:
        """Write down the owner of a new checkpoint; check that of an existing one."""
        wanted = {**owner[0], _SHIFT: self.shift}
        if self.exists:
            self.check_owner(owner)
            self._sweep()
            self._relocate()
            if {_SHIFT: 0, **self._identity()} == wanted:
                return
        write_note(self.path / _IDENTITY, json.dumps(wanted))

    @property
    def shift(self) -> int:
        """The number of microseconds that is added to event times for Spark's watermark.

        It is 0 for a checkpoint of an older version, whose state and watermark have true times.
        """
        return int(self._identity().get(_SHIFT, 0)) if self.exists else SHIFT

    @property
    def query_id(self) -> str | None:
        """The id of Spark's query, which ends with the checkpoint; None before its first start."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(json.loads((self.path / "metadata").read_text())["id"])
        return None

    def check_owner(self, owner: Owner) -> None:
        """Raise unless the checkpoint belongs to this owner."""
        found = self._identity()
        found.pop(_SHIFT, None)
        if found not in owner:
            whose = f"step {found['step']!r} of {found['app']!r}" if found else "something else"
            raise ForeignCheckpoint(
                f"The checkpoint in {self.path} belongs to {whose}, as it was declared then, and "
                "not to this pipeline",
                hint="Remove it and the pipeline is computed again from the log; or give the "
                "changed pipeline another name",
            )

    def _identity(self) -> dict[str, Any]:
        """The owner in the note; empty if it cannot be read."""
        found = None
        with contextlib.suppress(json.JSONDecodeError, FileNotFoundError):
            found = json.loads((self.path / _IDENTITY).read_text())
        return found if isinstance(found, dict) else {}

    def _sweep(self) -> None:
        """Remove temporary files of a Spark that was killed.

        Spark counts them as batches, and would skip its first batch.
        """
        for folder in ("offsets", "commits"):
            for left in (self.path / folder).glob(".*.tmp*"):
                left.unlink(missing_ok=True)

    def _relocate(self) -> None:
        """Correct the absolute paths in Spark's state metadata if the folder was moved."""
        here = f"file:{self.path.absolute()}"
        for file in self.path.glob("state/*/_metadata/v2/[0-9]*"):
            text = file.read_text()
            moved = _SCHEMA_PATH.sub(lambda found: f'"{here}{found[1]}"', text)
            if moved != text:
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
                write_note(file, moved)

    def check(self, step: Step, begun: Positions, reached: Positions) -> None:
        """Raise unless Spark can resume from it and every batch in it has stored results."""
        last = self.last_done()
        done = begun if last < 0 else self.end_of(last)
        if behind(reached, done):
            raise PipelineError(
                f"Step {step.name!r} has stored results up to {commits_told(reached)}, and "
                f"its checkpoint resumes at {commits_told(done)}",
                hint=f"Remove {self.path}; the missing results are then computed again",
            )
        if last >= 0 and step.computed.has_spark_state and not self.has_state(last + 1):
            raise self._damaged(f"the state of its {last + 1:,} batches is missing")

    def last_done(self) -> int:
        """The number of the last batch that Spark committed; -1 if there is none."""
        return max(self._numbers("commits"), default=-1)

    def planned(self) -> list[int]:
        """The numbers of the batches whose end Spark has written."""
        return self._numbers("offsets")

    def _numbers(self, folder: str) -> list[int]:
        names = [path.name for path in (self.path / folder).glob("[0-9]*")]
        return sorted(int(name) for name in names if name.isdigit())

    def end_of(self, number: int) -> dict[str, Position]:
        """The end of a batch, which Spark writes before the batch begins."""
        try:
            return batch_end(self.path, number)
        except (OSError, ValueError, KeyError) as error:
            raise self._damaged(f"the end of batch {number} cannot be read") from error

    def sync_plan(self, number: int) -> None:
        """Sync the end of a batch to disk, which Spark does not do.

        Stored results survive a power cut, so the batch has to keep the same end.
        """
        for path in (self.path / "metadata", self.path / "offsets" / str(number)):
            sync_path(path)
            sync_path(path.parent)

    def has_state(self, version: int) -> bool:
        """True if every part of the state has a version."""
        parts = [path for path in self.path.glob("state/*/[0-9]*") if path.is_dir()]
        return bool(parts) and all(any(part.rglob(f"{version}[._]*")) for part in parts)

    def _damaged(self, how: str) -> PipelineError:
        return PipelineError(
            f"The checkpoint in {self.path} is damaged: {how}",
            hint="Remove it. Spark's state is then computed again from the log, and stored "
            "results stay",
        )
