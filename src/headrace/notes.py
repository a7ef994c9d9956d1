"""Small files that say one thing, such as how far something is."""

from __future__ import annotations

import os
from pathlib import Path


def write_note(path: Path, text: str) -> None:
    """Write a file as a whole or not at all, whatever was in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)
