"""Where an application keeps what it derives from a log.

Beside an embedded log that is its own folder. A broker has none for us, so what belongs to its
topics is in a folder of this machine: `headrace-state`, or where HEADRACE_STATE says.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

_FILE = "file:"

STATE = "HEADRACE_STATE"
DEFAULT_STATE = "headrace-state"


def folder_of(url: str) -> Path:
    """The folder of an embedded log, or that of what is derived from a broker's topics."""
    if url.startswith(_FILE):
        return Path(url.removeprefix(_FILE))
    brokers = url.partition("://")[2].partition("?")[0].strip("/")
    return _state() / re.sub(r"[^A-Za-z0-9.-]+", "_", brokers)


def share_folder(url: str, cluster: str) -> None:
    """Have all addresses of a cluster mean one folder: that of the first it was used by.

    Else an application that asks another broker would begin anew, and tell everything again.
    """
    mine, first = folder_of(url), _state() / "clusters" / cluster
    if not first.exists():
        first.parent.mkdir(parents=True, exist_ok=True)
        new = first.with_name(f"{cluster}.{os.getpid()}")
        new.write_text(mine.name)
        with contextlib.suppress(FileExistsError):
            os.link(new, first)
        new.unlink()
    if (name := first.read_text()) != mine.name:
        with contextlib.suppress(FileExistsError):
            mine.symlink_to(name, target_is_directory=True)


def _state() -> Path:
    return Path(os.environ.get(STATE) or DEFAULT_STATE)


def views_folder(url: str) -> Path:
    """A database for each application, `APP.db`."""
    return folder_of(url) / "views"


def database_of(url: str, app: str) -> Path:
    """The database of an application's views."""
    return views_folder(url) / f"{app}.db"


def app_folder(url: str, app: str) -> Path:
    """An application's checkpoints, its lock, and what Spark has to say."""
    return folder_of(url) / "apps" / app


def checkpoint_of(url: str, app: str, step: str) -> Path:
    """Where Spark remembers what it needs of a step."""
    return app_folder(url, app) / "checkpoints" / step


def landing_of(url: str, app: str) -> Path:
    """The embedded log that a broker's topics are copied into for an application."""
    return app_folder(url, app) / "landing"


@dataclass(frozen=True)
class BuildPlace:
    """Where a version of a view is built that is not the live one: no reader looks there."""

    folder: Path
    lock: Path

    @property
    def database(self) -> Path:
        return self.folder / "view.db"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"


def build_place(url: str, app: str, view: str, kind: str = "rebuild") -> BuildPlace:
    """The place of a view's next version, or of another `kind` of version."""
    folder = app_folder(url, app)
    return BuildPlace(folder / kind / view, folder / f"{kind}.{view}.lock")
