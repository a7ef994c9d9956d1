"""From a URL to a log."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.clock import Clock
from headrace.errors import InvalidSetting
from headrace.log.file.log import FileLog
from headrace.log.interface import Log

DEFAULT = "file:./data"
VARIABLE = "HEADRACE_LOG"


def open_log(url: str | None = None, *, clock: Clock | None = None, create: bool = True) -> Log:
    """The log at a URL; without one, at the URL in HEADRACE_LOG, or in ./data.

    With `create` a folder that is no log yet becomes one.
    """
    url = url or os.environ.get(VARIABLE) or DEFAULT
    scheme, _, rest = url.partition(":")
    if scheme == "file" and rest:
        path = rest[2:] if rest.startswith("//") else rest
        return FileLog(Path(path).expanduser(), clock=clock, create=create)
    raise InvalidSetting(
        f"{url!r} is not the address of a log",
        hint="Use file:FOLDER for a log in a folder, such as file:./data",
    )
