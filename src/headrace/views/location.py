"""Where an application keeps what it derives from a log: beside the log itself, in its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.errors import Unsupported

_FILE = "file:"


def folder_of(url: str) -> Path:
    """The folder of an embedded log."""
    if not url.startswith(_FILE):
        raise Unsupported(
            f"Views of the log at {url} have no place yet", hint="Use an embedded log: file:./data"
        )
    return Path(url.removeprefix(_FILE))


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
