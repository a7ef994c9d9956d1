"""The search box of the stores' page, over real indexes of FTS5."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect

import headrace as hr
from headrace.clock import SystemClock
from headrace.log import Log
from headrace.store.following import NOTHING, Follower
from headrace.store.status import StoreStatus, note
from headrace.studio.settings import StudioSettings
from tests.studio.browser import patient
from tests.studio.logs import TOKEN, client_of, log_at
from tests.studio.serving import serving
from tests.view_writer import ViewWriter

SCRIPT = "<script>alert(1)</script>"
COLUMNS = pa.schema([("id", pa.int64()), ("title", pa.string()), ("tags", pa.list_(pa.string()))])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Two views with a search index each; the second one is of the application `other.app`."""
    with log_at(tmp_path) as log:
        rows: list[dict[str, Any]] = [
            {"id": 1, "title": f"Blue shoe {SCRIPT}", "tags": ["rain", SCRIPT]},
            {"id": 2, "title": "Red shoe & more", "tags": []},
            *({"id": n, "title": f"Shelf {n}", "tags": ["oak"]} for n in range(3, 30)),
        ]
        for app, found in (("shop", rows), ("other.app", rows[:1])):
            with ViewWriter(log, app, "products", COLUMNS) as writer:
                writer.write(*found)
                with Follower(log, app, "products", hr.Search()) as follower:
                    while follower.advance() is not NOTHING:
                        pass
            note(
                log.home,
                StoreStatus(app, "products", "search:", state="following",
                            last_batch=SystemClock().now(), last_rows=len(found)),
            )  # fmt: skip
        yield log


@pytest.fixture
def client(log: Log) -> Iterator[TestClient]:
    with client_of(log) as client:
        yield client


def search(client: TestClient, q: str, view: str = "shop.products") -> str:
    answer = client.get("/stores", params={"view": view, "q": q})
    assert answer.status_code == 200
    return answer.text.partition('<div id="hits"')[2]


def test_words_are_found_and_marked_and_a_text_of_a_row_is_no_markup(client: TestClient) -> None:
    found = search(client, "blue sho*")
    assert "<mark>Blue</mark> <mark>shoe</mark>" in found
    assert SCRIPT not in found and "&lt;script&gt;" in found
    assert "Red" not in found
    assert "Red <mark>shoe</mark> &amp; more" in search(client, "shoe -blue")
    assert "Only the first 20 are shown" in search(client, "shelf")


def test_an_index_of_each_application_is_searched(client: TestClient) -> None:
    assert "No row of other.app.products" in search(client, "red", "other.app.products")
    assert "<mark>Blue</mark>" in search(client, "blue", "other.app.products")


@pytest.mark.parametrize("q", ['"', "-blue", "* OR", "nosuch:blue", f'{SCRIPT} "'])
def test_a_query_that_cannot_be_answered_is_explained(client: TestClient, q: str) -> None:
    text = search(client, q)
    assert SCRIPT not in text
    assert 'role="alert"' in text or "No row of" in text


def test_no_words_search_nothing(client: TestClient) -> None:
    assert "<table" not in search(client, "  ")


def test_the_box_searches_in_the_page_and_is_accessible(log: Log, browser: Browser) -> None:
    with (
        serving(StudioSettings(log=log.url, token=TOKEN)) as settings,
        browser.new_context(viewport={"width": 390, "height": 844}) as context,
    ):
        page = patient(context.new_page())
        page.goto(settings.address)
        page.goto(f"{settings.origin}/stores")
        page.wait_for_selector("form[data-htmx-powered]", state="attached")
        page.get_by_label("Index").select_option("shop.products")
        page.get_by_label("Words").fill("shoe")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("#hits mark")).to_have_count(2)
        assert page.get_by_label("Words").input_value() == "shoe"
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        found = Axe().run(page).response["violations"]
        assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
        page.get_by_label("Words").fill("sofa")
        page.keyboard.press("Enter")
        expect(page.locator("#hits")).to_contain_text("No row of shop.products has these words")
