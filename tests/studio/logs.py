"""A log and a client of its studio."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastapi.testclient import TestClient

from headrace.eventsourcing import Domain
from headrace.log import Log, open_log
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings

TOKEN = "secret-token"


def log_at(folder: Path) -> Log:
    """A new log in a folder."""
    return open_log(f"file:{folder / 'log'}")


@contextlib.contextmanager
def client_of(
    log: Log, *, read_only: bool = False, domains: Sequence[Domain] = ()
) -> Iterator[TestClient]:
    """A program that has the studio's token."""
    named = {domain.name: domain for domain in domains}
    settings = StudioSettings(log=log.url, token=TOKEN, read_only=read_only, domains=named)
    headers = {"authorization": f"Bearer {TOKEN}"}
    with TestClient(studio(settings), base_url=settings.origin, headers=headers) as client:
        yield client
