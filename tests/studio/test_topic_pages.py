"""Topics and groups in a real browser: browse, follow, write, go back in time, reset."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, expect

from headrace.log import Log
from headrace.log.dead_letter import DEAD_LETTER
from headrace.studio.settings import StudioSettings
from tests.studio.browser import Watched
from tests.studio.logs import log_at
from tests.studio.serving import serving

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LETTER = {
    "step": "counts", "topic": "views", "partition": 0, "offset": 7, "commit_number": 1,
    "appended": NOW, "reason": "no event time", "row": '{"n": 7}',
}  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with log_at(tmp_path_factory.mktemp("studio")) as log:
        log.create_topic("views", schema="user string, n bigint", key="user")
        log.create_topic("raw")
        log.create_topic("app.dead", schema=DEAD_LETTER)
        with log.producer(acks="written") as producer:
            for n in range(120):
                producer.send("views", {"user": f"u{n % 3}", "n": n})
            producer.flush()
            producer.send("raw", SCRIPT, key=SCRIPT, headers=[(SCRIPT, SCRIPT.encode())])
            producer.flush()
            producer.send("app.dead", LETTER)
        with log.consumer("views", group="billing", commit="manual") as consumer:
            consumer.poll(max_records=20)
            consumer.commit()
        yield log


@pytest.fixture(scope="module")
def settings(log: Log) -> Iterator[StudioSettings]:
    with serving(StudioSettings(log=log.url)) as settings:
        yield settings


@pytest.fixture
def watched(browser: Browser, settings: StudioSettings) -> Iterator[Watched]:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.goto(settings.address)
        watched = Watched(page)
        yield watched
        assert watched.errors == []


def test_records_are_browsed_and_searched(watched: Watched, settings: StudioSettings) -> None:
    page = watched.page
    page.goto(f"{settings.origin}/topics")
    page.get_by_role("link", name="views", exact=True).click()
    rows = page.locator("#records tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text('"n": 119')
    page.get_by_role("link", name="Older").click()
    expect(rows.first).to_contain_text('"n": 69')
    page.get_by_label("Text", exact=True).fill("u2")
    page.get_by_label("From", exact=True).fill("earliest")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(40)
    expect(rows.first).to_contain_text('"n": 2')
    # The address is the filter.
    page.goto(page.url)
    expect(rows).to_have_count(40)


def test_records_are_followed_live_and_written_by_hand(
    watched: Watched, settings: StudioSettings, log: Log
) -> None:
    page = watched.page
    page.goto(f"{settings.origin}/topics/raw")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("button", name="Follow live").click()
    rows = page.locator("#records tbody tr")
    expect(rows).to_have_count(1)
    with log.producer() as producer:
        for number in (2, 3):
            producer.send("raw", f"row {number} {SCRIPT}").wait()
            expect(rows).to_have_count(number)
            expect(rows.first).to_contain_text(f"row {number} <script>")
    assert sum(each.endswith("/follow") for each in asked) == 1, "it was not one stream"
    watched.open(page.url)
    page.get_by_label("Value").fill(SCRIPT)
    page.get_by_label("Headers").fill("{")
    page.get_by_role("button", name="Write").click()
    expect(page.locator("#produced .failure")).to_contain_text("The headers are not JSON")
    # The browser's console names a refused request; the page says why.
    assert ["status of 400" in error for error in watched.errors] == [True]
    watched.errors.clear()
    page.get_by_label("Headers").fill('{"by": "hand"}')
    page.get_by_role("button", name="Write").click()
    expect(page.locator("#produced .success")).to_contain_text("offset 3")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("hand")


def test_scripts_in_records_do_not_run(watched: Watched, settings: StudioSettings) -> None:
    page, asked = watched.page, []

    def opened(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", opened)
    for path in ("/topics/raw", "/topics/raw?follow=1", "/topics/raw?text=%3Cscript%3Ealert"):
        page.goto(f"{settings.origin}{path}")
        expect(page.locator("#records tbody tr").last).to_contain_text(SCRIPT)
    assert page.locator("main img, main script").count() == 0
    assert asked == []


def test_the_slider_shows_the_topic_as_it_was(watched: Watched, settings: StudioSettings) -> None:
    page = watched.page
    watched.open(f"{settings.origin}/topics/raw")
    page.get_by_label("As of commit").focus()
    page.keyboard.press("Home")
    expect(page.locator('[data-fact="records"]')).to_have_text("0")
    expect(page.locator('[data-fact="asof"]')).to_have_text("0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator('[data-fact="records"]')).to_have_text("1")
    assert "asof=2" in page.url


def test_sending_again_and_resets_ask_first(
    watched: Watched, settings: StudioSettings, log: Log
) -> None:
    page, answers = watched.page, iter((False, True, False, True))
    page.on("dialog", lambda each: each.accept() if next(answers) else each.dismiss())
    before = log.topic("views").records
    watched.open(f"{settings.origin}/topics/app.dead")
    page.get_by_role("button", name="Send again").click()
    assert log.topic("views").records == before
    page.get_by_role("button", name="Send again").click()
    expect(page.locator("#again .success")).to_contain_text("offset 120")
    watched.open(f"{settings.origin}/groups/billing")
    page.get_by_role("button", name="Reset").click()
    assert [lag.committed for lag in log.group("billing").lags] == [20]
    page.get_by_role("button", name="Reset").click()
    expect(page.locator("#reset .success")).to_contain_text("Reset 1 partition")
    expect(page.locator('[data-fact="lag"]')).to_have_text("121")
    assert page.locator(".series canvas").count() == 1


def test_pages_are_accessible_and_fit_a_phone(watched: Watched, settings: StudioSettings) -> None:
    page = watched.page
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("/topics", "/groups", "/topics/raw", "/topics/app.dead", "/groups/billing"):
        page.emulate_media(color_scheme="light")
        page.goto(f"{settings.origin}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert _faults(page) == [], path
        if path.count("/") > 1:
            page.emulate_media(color_scheme="dark")
            assert _faults(page) == [], f"{path}, dark"


def _faults(page: Page) -> list[tuple[str, list[str]]]:
    """Serious accessibility faults, by rule."""
    return [
        (each["id"], [node["target"] for node in each["nodes"]][:3])
        for each in Axe().run(page).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
