"""The folders of what an application derives from a log.

They are in the log's home: for an embedded log its own folder, for a broker a local one.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from headrace.log.home import folder_of, state_folder


def share_folder(url: str, cluster: str) -> None:
    """Map all addresses of a cluster to one folder: that of the first address used.

    Else an application that uses another broker would start over and publish everything again.
    """
    mine, first = folder_of(url), state_folder() / "clusters" / cluster
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


def known_folder(url: str, cluster: str) -> Path:
    """The folder of a broker's applications, under whichever address of the cluster they ran."""
    mine, first = folder_of(url), state_folder() / "clusters" / cluster
    return mine if mine.exists() or not first.exists() else mine.with_name(first.read_text())


def views_folder(url: str) -> Path:
    """The folder with a database for each application, `APP.db`."""
    return folder_of(url) / "views"


def database_of(url: str, app: str) -> Path:
    """The database of an application's views."""
    return views_folder(url) / f"{app}.db"


def stores_folder(url: str) -> Path:
    """The folder of stores that keep files of their own."""
    return folder_of(url) / "stores"


def app_folder(url: str, app: str) -> Path:
    """The folder of an application's checkpoints, its lock and Spark's log."""
    return folder_of(url) / "apps" / app


def checkpoint_of(url: str, app: str, step: str) -> Path:
    """Spark's checkpoint of a step."""
    return app_folder(url, app) / "checkpoints" / step


@dataclass(frozen=True)
class BuildPlace:
    """The place where a new version of a view is built, unseen by readers."""

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
