"""A studio that runs in a thread of the tests' process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace

import uvicorn

from headrace.studio.server import config_of, listening
from headrace.studio.settings import StudioSettings
from tests.waiting import left


@contextlib.contextmanager
def serving(settings: StudioSettings) -> Iterator[StudioSettings]:
    """Serve a studio on a free port; the settings returned have it."""
    with listening(replace(settings, port=0)) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        server = uvicorn.Server(config_of(settings, "warning"))
        # Signals belong to the tests' own thread.
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield settings
        finally:
            server.should_exit = True
            thread.join(left())
