"""The log and the views that pages read, opened on first use and shared by requests."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import Depends, Request

from headrace.closing import Closing
from headrace.eventsourcing import Domain, Store
from headrace.log import Capability, Log, open_log
from headrace.store import Views, open_views
from headrace.studio.settings import StudioSettings


class Handles(Closing):
    """The log of a studio and its views. Any thread may use them."""

    def __init__(self, settings: StudioSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._log: Log | None = None
        self._views: Views | None = None
        self._stores: dict[str, Store] = {}

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

    def store(self, domain: Domain) -> Store | None:
        """The store of a domain, without keys: personal fields stay sealed.

        None as long as a topic of the domain is missing: the studio makes none.
        """
        log, names = self.log, {topic.name for topic in domain.topics}
        if Capability.CONDITIONS in log.capabilities and log.topic_ids(names).keys() < names:
            return None
        with self._lock:
            if domain.name not in self._stores:
                self._stores[domain.name] = domain.open(log)
            return self._stores[domain.name]

    def close(self) -> None:
        with self._lock:
            for opened in (*self._stores.values(), self._views, self._log):
                if opened is not None:
                    opened.close()
            self._stores.clear()
            self._views = self._log = None


def _handles(request: Request) -> Handles:
    found = request.app.state.handles
    assert isinstance(found, Handles)
    return found


Opened = Annotated[Handles, Depends(_handles)]
"""The handles, as a parameter of a route."""
