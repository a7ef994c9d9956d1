"""Actions of a person on the pages of simulations, with the mouse, and their effect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from headrace.studio.learn.catalog import simulate
from headrace.studio.settings import StudioSettings
from tests.studio.browser import Watched
from tests.studio.serving import serving


@pytest.fixture(scope="module")
def settings() -> Iterator[StudioSettings]:
    with serving(StudioSettings(log="file:/nowhere")) as found:
        yield found


@pytest.fixture
def watched(browser: Browser, settings: StudioSettings) -> Iterator[Watched]:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(settings.address)
        watched = Watched(page)
        yield watched
        assert watched.errors == []


def press(page: Page, name: str, step: int) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    expect(page.locator("#frame")).to_have_attribute("data-step", str(step))


def shows(page: Page, name: str, *, step: int, **given: object) -> None:
    for number in simulate(name, step=step, **given).numbers:
        expect(page.locator(f'[data-fact="{number.name}"]')).to_have_text(number.text)


def test_eight_consumers_on_six_partitions_leave_two_idle(
    watched: Watched, settings: StudioSettings
) -> None:
    watched.open(f"{settings.origin}/learn/partitions?step=10&consumers=6")
    press(watched.page, "Add a consumer", 11)
    press(watched.page, "Add a consumer", 12)
    expect(watched.page.locator('[data-fact="idle"]')).to_have_text("2")
    press(watched.page, "Kill a broker", 13)
    press(watched.page, "Send ada", 14)
    done = "10:add,11:add,12:kill,13:send-ada"
    shows(watched.page, "partitions", step=14, consumers=6, do=done)


def test_a_consumer_joins_late_and_another_replays(
    watched: Watched, settings: StudioSettings
) -> None:
    watched.open(f"{settings.origin}/learn/three-consumers?step=30")
    press(watched.page, "Audit joins", 31)
    press(watched.page, "Replay search", 32)
    shows(watched.page, "three-consumers", step=32, do="30:join,31:replay")
    expect(watched.page.locator('[data-fact="audit lag"]')).to_be_visible()


def test_a_longer_batch_interval_loses_more(watched: Watched, settings: StudioSettings) -> None:
    page = watched.page
    watched.open(f"{settings.origin}/learn/batch-or-stream?step=60")
    shows(page, "batch-or-stream", step=60)
    before = page.locator('[data-fact="lost with batch"]').inner_text()
    page.locator("input[name=every]").fill("60")
    expect(page.locator('[data-fact="lost with batch"]')).not_to_have_text(before)
    shows(page, "batch-or-stream", step=60, every=60)
