"""Copy Spark's checkpoints while Spark runs, so that they match the stored results.

Spark writes a batch's end into `offsets` before the batch, new versions of its state during it, and
its number into `commits` after it. Files do not change, and Spark keeps those of the last hundred
batches. So this copies the checkpoint of the batch whose results were stored last. In the copy that
batch is not committed: Spark runs it again for its own state, and the views, which already have it,
store nothing.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from headrace.plan.position import Position
from headrace.runtime.checkpoint import Checkpoint

_VERSION = re.compile(r"(\d+)([._].*)?")


def copy_checkpoint(source: Path, target: Path, reached: Mapping[str, Position]) -> bool:
    """True if a checkpoint that matches the stored results was copied."""
    batch = _last_batch(Checkpoint(source), reached)
    if batch is None:
        return False
    for path in source.rglob("*"):
        inside = path.relative_to(source)
        if path.is_file() and not path.name.startswith(".") and _wanted(inside, batch):
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # old files, which Spark deletes
                shutil.copyfile(path, target / inside)
    copy = Checkpoint(target)
    stateful = any(target.glob("state/*/[0-9]*"))
    if copy.last_done() == batch - 1 and (not batch or not stateful or copy.has_state(batch)):
        return True
    shutil.rmtree(target)
    return False


def _last_batch(checkpoint: Checkpoint, reached: Mapping[str, Position]) -> int | None:
    """The number of the batch that the stored results end with."""
    names = [path.name for path in (checkpoint.path / "offsets").glob("[0-9]*")]
    for number in sorted(map(int, filter(str.isdigit, names)), reverse=True):
        if checkpoint.end_of(number) == reached:
            return number
    return None


def _wanted(inside: Path, batch: int) -> bool:
    """True if a file is older than a batch, or describes the batch."""
    found = _VERSION.fullmatch(inside.name)
    last = {"offsets": batch, "commits": batch - 1, "state": batch}.get(inside.parts[0])
    # Versions of the state are named 7.delta or 7_id.zip; a bare number is something else there.
    if last is None or found is None or (inside.parts[0] == "state" and not found[2]):
        return True
    return int(found[1]) <= last
