"""Where an application keeps what it derives from a log: beside the log itself, in its folder."""

from __future__ import annotations

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


def app_folder(url: str, app: str) -> Path:
    """An application's checkpoints, its lock, and what Spark has to say."""
    return folder_of(url) / "apps" / app
