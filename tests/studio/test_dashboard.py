"""The dashboard: the top ten of the current window, live in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, expect

import headrace as hr
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings
from pipelines import trending
from tests.studio.browser import Watched
from tests.studio.serving import serving
from tests.studio.viewed import NOON, SECOND, hit, pageviews, write

APP, TOPIC = pageviews()
PAGES = [hit(f"/{n}", n) for n in range(12) for _ in range(12 - n)]
VIEW = "/views/pageviews/hits_per_minute"


def page_of(url: str, path: str = "/dashboard") -> str:
    settings = StudioSettings(log=url, token="t")
    bearer = {"authorization": "Bearer t"}
    with TestClient(studio(settings), base_url=settings.origin, headers=bearer) as client:
        return client.get(path).text


def test_a_log_without_views_says_what_to_run(tmp_path: Path) -> None:
    with hr.open_log(f"file:{tmp_path}"):
        pass
    assert "headrace demo" in page_of(f"file:{tmp_path}")


def test_any_windowed_view_can_be_shown(tmp_path: Path) -> None:
    app = hr.App("shop")
    orders = app.topic("orders", schema="url string, at timestamp", event_time="at")
    made = hr.aggregate(
        orders,
        by="url",
        window=hr.tumbling(60 * SECOND),
        lateness=hr.Lateness(delay=SECOND, grace=SECOND),
        hits=hr.count(),
    )
    app.view("orders_per_minute", made)
    url = write(tmp_path, app, orders, [{"url": "/a", "at": NOON}])
    text = page_of(url)
    assert "orders_per_minute" in text
    assert "The pipeline that counts this" not in text


def test_hopping_windows_show_the_one_that_has_counted_longest(tmp_path: Path) -> None:
    rows = [{"user": "u", "hashtags": ["sun"], "at": NOON + 60 * n * SECOND} for n in range(8)]
    url = write(tmp_path, trending.app, trending.posts, rows)
    hopping = page_of(url).partition('id="trending-trending_hopping"')[2]
    # Five windows are open at 12:07. The one that ends next began at 12:03.
    assert "2026-03-01 12:03 – 12:08" in hopping
    assert 'data-rank="1">5<' in hopping


@pytest.fixture
def watched(
    browser: Browser, tmp_path: Path
) -> Iterator[tuple[Watched, Page, StudioSettings, Path]]:
    url = write(tmp_path, APP, TOPIC, PAGES)
    with (
        serving(StudioSettings(log=url)) as settings,
        browser.new_context(viewport={"width": 1280, "height": 900}) as context,
    ):
        page = context.new_page()
        page.goto(settings.address)
        watched = Watched(page)
        yield watched, page, settings, tmp_path
        assert watched.errors == []


def test_the_dashboard_follows_the_view_and_nothing_jumps(
    watched: tuple[Watched, Page, StudioSettings, Path],
) -> None:
    _, page, settings, folder = watched
    page.goto(f"{settings.origin}/dashboard")
    board = page.locator("#pageviews-hits_per_minute")
    first, value = board.locator(".rank-label").first, board.locator('[data-rank="1"]')
    expect(first).to_have_text("/0")
    expect(value).to_have_text("12")
    assert board.locator(".rank-label").count() == 10
    height = page.evaluate("document.documentElement.scrollHeight")
    write(folder, APP, TOPIC, [hit("/new", 30) for _ in range(20)])
    expect(first).to_have_text("/new")
    expect(value).to_have_text("20")
    # A new window starts with one page: the places of the other nine stay.
    write(folder, APP, TOPIC, [hit("/later", 70)])
    expect(first).to_have_text("/later")
    assert page.evaluate("document.documentElement.scrollHeight") == height
    assert "hr.aggregate(" in page.locator(".source pre").inner_text()


def test_a_view_page_follows_goes_back_in_time_and_answers_queries(
    watched: tuple[Watched, Page, StudioSettings, Path],
) -> None:
    watch, page, settings, folder = watched
    watch.open(f"{settings.origin}{VIEW}")
    rows = page.locator('[data-fact="rows"]')
    expect(rows).to_have_text("12")
    write(folder, APP, TOPIC, [hit("/new", 70)])
    expect(rows).to_have_text("13")
    page.locator("#past input").evaluate(
        "field => { field.value = field.min; "
        "field.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    expect(page.locator("#rows .note")).to_contain_text("As of commit")
    expect(page.locator("#rows tbody tr")).to_have_count(12)
    page.locator("textarea").fill("SELECT sum(hits) AS total FROM hits_per_minute")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#answer td")).to_have_text("79")


@pytest.mark.parametrize("path", ["/dashboard", "/views", VIEW])
def test_a_page_of_views_is_accessible_and_fits_a_phone(
    watched: tuple[Watched, Page, StudioSettings, Path], path: str
) -> None:
    _, page, settings, _ = watched
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(settings.origin + path)
        found = Axe().run(page).response["violations"]
        faults = [
            (each["id"], [node["target"] for node in each["nodes"]][:3])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert faults == [], scheme
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(settings.origin + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
