"""Debian's Chromium, driven by Playwright. `make test` installs it where it can."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Response,
    expect,
    sync_playwright,
)

from tests.servers.server import unavailable
from tests.waiting import left

_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        unavailable("no Chromium on this machine: scripts/services installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


def patient(page: Page) -> Page:
    """Let a page, and what is expected of it, wait as long as the test may."""
    milliseconds = left() * 1000
    page.set_default_timeout(milliseconds)
    expect.set_options(timeout=milliseconds)
    return page


class Watched:
    """A page whose errors are kept: those of its console and of its requests."""

    def __init__(self, page: Page) -> None:
        self.page = patient(page)
        self.errors: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("response", self._answered)

    def open(self, address: str) -> None:
        """Open a page, and wait until its controls react."""
        self.page.goto(address)
        self.page.wait_for_selector("form[data-htmx-powered]", state="attached")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _answered(self, answer: Response) -> None:
        if answer.status >= 500:
            self.errors.append(f"{answer.status} {answer.url}")
