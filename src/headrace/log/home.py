"""The folder of what is derived from a log.

For an embedded log it is the log's own; for a broker, a local folder: `headrace-state`, or the
value of HEADRACE_STATE.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_FILE = "file:"

STATE = "HEADRACE_STATE"
DEFAULT_STATE = "headrace-state"


def folder_of(url: str) -> Path:
    """The folder of an embedded log, or the local state of what reads from a broker."""
    if url.startswith(_FILE):
        return Path(url.removeprefix(_FILE))
    brokers = url.partition("://")[2].partition("?")[0].strip("/")
    return state_folder() / re.sub(r"[^A-Za-z0-9.-]+", "_", brokers)


def state_folder() -> Path:
    """The folder of what is derived from brokers' logs."""
    return Path(os.environ.get(STATE) or DEFAULT_STATE)
