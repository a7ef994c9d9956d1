"""The first page: the data flow of every pipeline in one picture, and a welcome without one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect

from headrace.log import Log, open_log
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings
from tests.studio.browser import Watched
from tests.studio.piped import APP, TOKEN, VIEW, process, settings_of, visits, write
from tests.studio.serving import serving


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with open_log(f"file:{tmp_path_factory.mktemp('overview') / 'log'}") as log:
        write(log, visits(200))
        process(log)
        yield log


def boxes(text: str) -> set[str]:
    """The titles of the boxes in the picture."""
    return set(re.findall(r'class="box-title"[^>]*>([^<]*)<', text))


def start_page(settings: StudioSettings) -> str:
    with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:
        answer = client.get("/")
        assert answer.status_code == 200
        return answer.text


def test_topics_steps_views_and_outputs_are_one_picture(log: Log, tmp_path: Path) -> None:
    text = start_page(settings_of(log, tmp_path))
    assert boxes(text) == {"pageviews", VIEW, "pageviews.late"}
    assert "watermark 12:01:29" in text
    assert "200 records" in text


def test_without_named_applications_the_stored_results_make_the_picture(
    log: Log, tmp_path: Path
) -> None:
    text = start_page(settings_of(log, tmp_path, named=False))
    assert boxes(text) == {"pageviews", VIEW}


def test_a_log_that_is_not_there_gets_three_things_to_do() -> None:
    text = start_page(StudioSettings(log="file:/nowhere", token="t"))
    assert text.count('class="ordinal"') == 3
    assert 'href="/learn"' in text


def test_a_step_with_a_backlog_that_does_not_run_is_red_and_says_why(tmp_path: Path) -> None:
    with open_log(f"file:{tmp_path / 'log'}") as log:
        write(log, visits(80))
        process(log)
        write(log, visits(40, start=80))
        text = start_page(settings_of(log, tmp_path))
    assert 'class="box k-bad"' in text
    assert "it is not running; backlog: 40 rows in 1 commit" in text


def test_a_name_cannot_bring_markup_into_the_picture(tmp_path: Path) -> None:
    with open_log(f"file:{tmp_path / 'log'}") as log:
        write(log, [{**row, "url": "<script>alert(1)</script>"} for row in visits(40)])
        process(log)
        settings = settings_of(log, tmp_path)
        with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:
            for path in ("/", f"/pipelines/{APP}", f"/pipelines/{APP}/sample/{VIEW}"):
                assert "<script>alert" not in client.get(path).text


def test_the_picture_follows_the_log_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    with open_log(f"file:{tmp_path / 'log'}") as log:
        write(log, visits(80))
        process(log)
        with serving(settings_of(log, tmp_path)) as settings, browser.new_context() as context:
            page = context.new_page()
            watched = Watched(page)
            page.goto(settings.address)
            expect(page.locator(".on-screen .drawing")).to_contain_text("80 records")
            write(log, visits(40, start=80))
            expect(page.locator(".on-screen .drawing")).to_contain_text("120 records")
            expect(page.locator(".on-screen .drawing")).to_contain_text("lag 40")
            process(log)
            expect(page.locator(".on-screen .drawing")).to_contain_text("lag 0")
            assert watched.errors == []
            page.set_viewport_size({"width": 390, "height": 844})
            narrow = page.locator(".on-phone .drawing")
            expect(narrow).to_be_visible()
            expect(page.locator(".on-screen .drawing")).to_be_hidden()
            # All of the picture is seen without scrolling sideways.
            assert narrow.evaluate(
                "d => d.parentElement.scrollWidth <= d.parentElement.clientWidth"
            )
            expect(narrow).to_contain_text("lag 0")


def test_its_pages_have_no_serious_accessibility_fault_and_fit_a_phone(
    browser: Browser, log: Log, tmp_path: Path
) -> None:
    with serving(settings_of(log, tmp_path)) as settings, browser.new_context() as context:
        page = context.new_page()
        page.goto(settings.address)
        for path in ("/", "/pipelines", f"/pipelines/{APP}"):
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(settings.origin + path)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                found = Axe().run(page).response["violations"]
                faults = [each for each in found if each["impact"] in ("serious", "critical")]
                names = [(each["id"], each["nodes"][0]["target"]) for each in faults]
                assert names == [], (path, scheme)
            page.set_viewport_size({"width": 390, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
