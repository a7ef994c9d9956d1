"""Screenshots of the studio over a pipeline that runs, for the tour in the docs and for a look.

    scripts/screenshots              # those of the tour, in docs/pictures/tour
    scripts/screenshots FOLDER       # every page as well, light and dark, on a screen and a phone

They show a real run of pipelines/pageviews.py by Spark, with page views that keep coming.
"""

from __future__ import annotations

import base64
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, Page

from headrace.cli.demonstration.generator import Generator, Plan, start_after
from headrace.cli.demonstration.stage import pipeline_file
from headrace.cli.loading import load_app
from headrace.clock import SystemClock
from headrace.log import Log, open_log
from headrace.studio.server import in_background
from headrace.studio.settings import StudioSettings
from pipelines import bank
from tests.studio.browser import chromium

TOUR = Path(__file__).parents[2] / "docs" / "pictures" / "tour"
VIEW = "/views/pageviews/hits_per_minute"
_QUALITY = 0.82
_SCREEN, _PHONE = (1200, 800), (390, 844)
_RATE = 400
_STEP = 15_000
"""Microseconds of event time for each page view: six seconds of events in each second."""


@dataclass(frozen=True)
class Shot:
    """A picture of a page: its size, its colours, and what is done before it is taken."""

    name: str
    path: str
    size: tuple[int, int] = _SCREEN
    dark: bool = False
    waits: str = "main"
    acts: str = ""


SHOTS = (
    Shot("overview", "/", (1200, 720), waits=".drawing"),
    Shot("as-of", "/", (1200, 720), waits=".drawing", acts="past"),
    Shot("dashboard", "/dashboard", (1200, 760), dark=True, waits=".ranking"),
    Shot("pipeline", "/pipelines/pageviews", (1200, 980), waits=".series canvas"),
    Shot("view", VIEW, (1200, 900), waits="table"),
    Shot("why", VIEW, (1200, 820), waits="table", acts="why"),
    Shot("query", "/views/query?sql=" + quote("SELECT url, sum(hits) AS hits FROM hits_per_minute "
         "GROUP BY url ORDER BY 2 DESC LIMIT 8"), (1200, 640), dark=True, waits="table"),
    Shot("topic", "/topics/pageviews", (1200, 860), waits="table"),
    Shot("dead-letters", "/topics/pageviews.dead", (1200, 760), dark=True, waits="table"),
    Shot("group", "/groups/billing", (1200, 760), waits="table", acts="lag"),
    Shot("aggregate", "/domains/bank/account?id=ada&version=5", (1200, 1000), waits="#changes"),
    Shot("windows", "/learn/windows?step=30", (1200, 900), waits=".drawing"),
    Shot("capture", "/learn/change-capture?step=14&fails=20", (1200, 1120), waits=".drawing"),
    Shot("queue-and-log", "/learn/queue-and-log?step=9&do=6:crash-worker,6:crash-member",
         (1200, 1240), waits=".drawing"),
    Shot("event-sourcing", "/learn/event-sourcing?step=18&do=11:overdraw,13:backdate",
         (1200, 1240), dark=True, waits=".drawing"),
    Shot("exactly-once", "/learn/exactly-once?step=8", (1200, 860), dark=True, waits="main"),
    Shot("phone-overview", "/", _PHONE, waits=".on-phone .drawing"),
    Shot("phone-dashboard", "/dashboard", _PHONE, dark=True, waits=".ranking"),
    Shot("phone-view", VIEW, _PHONE, dark=True, waits="table"),
)  # fmt: skip
"""The pictures of the tour."""

_MORE = (
    *("/pipelines", "/views", "/topics", "/groups", "/learn", "/api", "/learn/your-data"),
    *("/learn/batch-or-stream", "/learn/three-consumers", "/learn/partitions", "/learn/joins"),
    *("/learn/checkpoints", "/learn/leader-loss", "/topics/pageviews?follow=1"),
    *("/domains", "/domains/bank", "/domains/bank/account?id=ada"),
)


def main(folder: str = "") -> None:
    """Take the pictures of the tour; with a folder, those of every page as well."""
    TOUR.mkdir(parents=True, exist_ok=True)
    with chromium() as browser, running(browser) as address:
        for shot in SHOTS:
            picture = take(browser, address, shot)
            file = TOUR / f"{shot.name}.webp"
            file.write_bytes(smaller(browser, picture, shot.size))
            print(f"{file.name}: {file.stat().st_size / 1024:.0f} KiB", flush=True)
        if folder:
            look(browser, address, Path(folder))
    total = sum(file.stat().st_size for file in TOUR.glob("*.webp"))
    print(f"{len(SHOTS)} pictures, {total / 1024:.0f} KiB")


def look(browser: Browser, address: str, folder: Path) -> None:
    """Take pictures of every page, light and dark, on a screen and on a phone, to look at."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = [*SHOTS, *(Shot(path.strip("/").replace("/", "-"), path) for path in _MORE)]
    for shot in pages:
        for dark in (False, True):
            for name, size in (("screen", (1200, 1400)), ("phone", (390, 1400))):
                made = replace(shot, dark=dark, size=size)
                kind = f"{name}-{'dark' if dark else 'light'}"
                file = folder / f"{shot.name.replace('?', '-')}-{kind}.png"
                file.write_bytes(take(browser, address, made))


def take(browser: Browser, address: str, shot: Shot) -> bytes:
    """One picture, as PNG."""
    width, height = shot.size
    with browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if shot.dark else "light",
        locale="en",
    ) as context:
        page = context.new_page()
        page.goto(address)
        page.goto(address.partition("/?")[0] + shot.path)
        page.wait_for_selector(shot.waits)
        act(page, shot.acts)
        # Charts and fonts: a moment after the page is there.
        page.wait_for_timeout(700)
        return page.screenshot()


def act(page: Page, what: str) -> None:
    """Do what a picture shows."""
    if what == "past":
        slider = page.locator("#history input[type=range]")
        slider.fill(str(int(slider.get_attribute("max") or "2") * 9 // 10))
        page.wait_for_selector("#overview[data-asof]")
    elif what == "lag":
        page.wait_for_timeout(15_000)
    elif what == "why":
        # The last of the shown rows counts few events.
        page.get_by_role("link", name="why?").last.click()
        page.wait_for_selector("table")


def smaller(browser: Browser, picture: bytes, size: tuple[int, int]) -> bytes:
    """A picture as WebP, by the browser's own encoder."""
    with browser.new_context() as context:
        page = context.new_page()
        text: str = page.evaluate(
            """async ([data, width, height, quality]) => {
                const image = new Image();
                image.src = "data:image/png;base64," + data;
                await image.decode();
                const canvas = new OffscreenCanvas(width, height);
                canvas.getContext("2d").drawImage(image, 0, 0);
                const blob = await canvas.convertToBlob({type: "image/webp", quality});
                const bytes = new Uint8Array(await blob.arrayBuffer());
                return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
            }""",
            [base64.b64encode(picture).decode(), *size, _QUALITY],
        )
    return base64.b64decode(text)


@contextlib.contextmanager
def running(browser: Browser) -> Iterator[str]:
    """A studio with the page-view pipeline running in it, and a group that reads along."""
    reference = f"{pipeline_file()}:app"
    app = load_app(reference)
    clock = SystemClock()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-shots-") as folder,
        open_log(f"file:{folder}/data") as log,
    ):
        topic = app.topics["pageviews"]
        log.ensure_topic(topic)
        start = start_after(clock.now(), None)
        fill(log)
        settings = StudioSettings(
            log.url, (reference,), port=0, token="tour", declared={app.name: app},
            domains={bank.bank.name: bank.bank},
        )  # fmt: skip
        plan = Plan(1_000_000, _RATE, _RATE // 4, start, _STEP)
        with Generator(log.url, topic, plan), in_background(settings) as address:
            with browser.new_context() as context:
                page = context.new_page()
                page.goto(address)
                page.goto(address.partition("/?")[0] + "/pipelines/pageviews")
                page.get_by_role("button", name="Start", exact=True).click()
                page.wait_for_selector("text=/rows = [1-9][0-9,]+ counted/", timeout=900_000)
                # Some minutes of windows, and some samples of rates.
                for _ in range(30):
                    _read(log)
                    page.wait_for_timeout(2_000)
            yield address


def fill(log: Log) -> None:
    """Accounts with a history, and commands that were refused."""
    day = datetime(2026, 3, 2, 9, tzinfo=UTC)
    with bank.bank.open(log) as store:
        for place, name in enumerate(("ada", "ben", "cleo")):
            opening = bank.Open(name, f"{name}@example.org")
            store.decide_across(bank.opening, opening, at=day + timedelta(minutes=place))
        for number, cents in enumerate((120_00, -45_00, -90_00, 20_00, -60_00, 75_00, -10_00)):
            command = bank.Deposit(cents) if cents > 0 else bank.Withdraw(-cents)
            who = {"who": ("ada", "teller 4")[number % 2], "why": ("rent", "salary")[cents > 0]}
            at = day + timedelta(days=number, hours=number)
            store.handle(bank.account, "ada", command, metadata=who, at=at)


def _read(log: Log) -> None:
    """Read some records in a group of its own, which falls behind."""
    with log.consumer("pageviews", group="billing", commit="manual") as consumer:
        consumer.poll(timedelta(seconds=1), max_records=500)
        consumer.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
