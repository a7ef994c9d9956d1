"""The log and the views that pages read, opened on first use and shared by requests."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import Depends, Request

from headrace.closing import Closing
from headrace.log import Log, open_log
from headrace.store import Views, open_views
from headrace.studio.settings import StudioSettings


class Handles(Closing):
    """The log of a studio and its views. Any thread may use them."""

    def __init__(self, settings: StudioSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._log: Log | None = None
        self._views: Views | None = None

    @property
    def log(self) -> Log:
        """The log. It raises in words as long as there is none."""
        with self._lock:
            if self._log is None:
                self._log = open_log(self.settings.log, create=False)
            return self._log

    @property
    def views(self) -> Views:
        """The views of all applications."""
        home = self.log.home
        with self._lock:
            if self._views is None:
                self._views = open_views(home)
            return self._views

    def close(self) -> None:
        with self._lock:
            for opened in (self._views, self._log):
                if opened is not None:
                    opened.close()
            self._views = self._log = None


def _handles(request: Request) -> Handles:
    found = request.app.state.handles
    assert isinstance(found, Handles)
    return found


Opened = Annotated[Handles, Depends(_handles)]
"""The handles, as a parameter of a route."""
