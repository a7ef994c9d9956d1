"""What Spark remembers of a step: a folder of its own files, and beside them whose it is."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.engine.position import Position
from headrace.errors import ForeignCheckpoint

_IDENTITY = "headrace.json"


class Checkpoint:
    """The checkpoint of one step."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, owner: Mapping[str, Any]) -> None:
        """Enter an owner, its `app` and `step` and more, if it is new; else compare them."""
        identity = self.path / _IDENTITY
        found = None
        if identity.exists():
            with contextlib.suppress(json.JSONDecodeError):
                found = json.loads(identity.read_text())
        elif not (self.path / "offsets").exists():
            self.path.mkdir(parents=True, exist_ok=True)
            written = identity.with_suffix(".new")
            written.write_text(json.dumps(owner))
            written.rename(identity)
            return
        if found != owner:
            whose = f"step {found['step']!r} of {found['app']!r}" if found else "something else"
            raise ForeignCheckpoint(
                f"The checkpoint in {self.path} belongs to {whose}, as it was declared then, and "
                "not to this pipeline",
                hint="Remove it and the pipeline is computed again from the log; or give the "
                "changed pipeline another name",
            )

    def last_done(self) -> int:
        """The number of the last batch that Spark believes to be done; -1 if there is none."""
        names = [path.name for path in (self.path / "commits").glob("[0-9]*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def end_of(self, number: int) -> dict[str, Position]:
        """Up to where a batch goes, as Spark has written it down before it began."""
        lines = (self.path / "offsets" / str(number)).read_text().splitlines()
        offsets = [json.loads(line) for line in lines if '"topic"' in line]
        return {offset["topic"]: Position.from_json(offset) for offset in offsets}
