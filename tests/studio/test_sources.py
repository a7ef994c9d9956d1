"""Captured databases and stores of views on their pages: what the log and the notes say."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi.testclient import TestClient
from playwright.sync_api import Browser

from headrace.cdc import read_state, run
from headrace.cdc.sqlite.source import SqliteSource
from headrace.cdc.state import (
    Notice,
    Reached,
    Snapshot,
    TableState,
    ensure_state_topic,
    write_state,
)
from headrace.log import Log
from headrace.store.status import StoreStatus, note
from headrace.studio.settings import StudioSettings
from tests.studio.logs import TOKEN, client_of, log_at
from tests.studio.serving import serving

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with log_at(tmp_path) as log:
        yield log


@pytest.fixture
def client(log: Log) -> Iterator[TestClient]:
    with client_of(log) as client:
        yield client


def captured(log: Log) -> None:
    """The state of a capture with a snapshot under way, a gap and a change of a schema."""
    ensure_state_topic(log, "shop")
    tables = [
        TableState("main.orders", "shop.main.orders", 1, "id bigint", ("id",),
                   Snapshot(2, "heal", '[40]', 40, 3, 0)),
        TableState("main.items", "shop.main.items", 2, "id bigint", ("id",),
                   Snapshot(1, "initial", None, 7, 7, 0, complete=True)),
    ]  # fmt: skip
    notices = [
        Notice("gap", f"the slot was dropped {SCRIPT}", None, 1, "0/16B3748", 1_000_000),
        Notice("schema", "column price was added", "main.orders", 2, "0/16B3750", 2_000_000),
    ]
    reached = Reached("0/16B3760", 5_000_000, None, 0, 0, 11, 54, "m", 7_500_000)
    with log.producer() as producer, producer.transaction() as transaction:
        write_state(transaction, "shop", reached, tables, notices)


def test_a_capture_shows_its_position_its_snapshots_and_what_happened(
    log: Log, client: TestClient
) -> None:
    assert "No database is captured" in client.get("/sources").text
    captured(log)
    text = client.get("/sources").text
    for words in (
        'data-fact="position">0/16B3760<',
        'data-fact="transactions">11<',
        'data-fact="was in the log after">2.5 s<',
        'data-fact="gaps">1<',
        "heal, reading after key [40]",
        "initial, complete",
        "column price was added",
        "the slot was dropped &lt;script&gt;",
    ):
        assert words in text, words
    (found,) = client.get("/api/sources").json()
    assert (found["prefix"], found["delay"], found["reached"]["changes"]) == ("shop", 2.5, 54)


def test_the_page_of_a_real_capture_has_what_its_state_has(
    log: Log, client: TestClient, tmp_path: Path
) -> None:
    shop = tmp_path / "shop.db"
    with sqlite3.connect(shop) as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        db.executemany("INSERT INTO orders VALUES (?, ?)", [(n, f"item {n}") for n in range(20)])
    db.close()
    from_sqlite(shop, log)
    (found,) = client.get("/api/sources").json()
    state = read_state(log, "shop")
    assert found["reached"]["position"] == state.reached.position
    text = client.get("/sources").text
    assert "initial, complete" in text
    assert f'href="/topics/{next(iter(state.tables.values())).topic}"' in text


def from_sqlite(path: Path, log: Log) -> None:
    """Capture a SQLite database until the log has all of it."""
    source = SqliteSource(path)
    source.attach()
    run(source, log, "shop", until_caught_up=True)


def stored(log: Log, **given: object) -> StoreStatus:
    """The note of a store of a view."""
    status = StoreStatus("app", "products", "redis://localhost", **given)  # type: ignore[arg-type]
    note(log.home, status)
    return status


def test_a_store_shows_its_state_its_last_batch_and_its_error(log: Log, client: TestClient) -> None:
    assert "No view of this log has a store" in client.get("/stores").text
    stored(log, state="failing", last_batch=1_000_000, last_rows=12, error=f"refused {SCRIPT}")
    text = client.get("/stores").text
    assert ">failing<" in text
    assert "1970-01-01 00:00:01Z" in text
    assert "refused &lt;script&gt;" in text
    assert SCRIPT not in text
    (found,) = client.get("/api/stores").json()
    assert (found["state"], found["lag"], found["last_rows"]) == ("failing", None, 12)


def test_the_pages_have_no_serious_accessibility_fault_and_fit_a_phone(
    browser: Browser, log: Log
) -> None:
    captured(log)
    stored(log, state="following", last_rows=3)
    with (
        serving(StudioSettings(log=log.url, token=TOKEN)) as settings,
        browser.new_context() as context,
    ):
        page = context.new_page()
        page.goto(settings.address)
        for path in ("/sources", "/stores"):
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": 1280, "height": 900})
                page.goto(settings.origin + path)
                found = Axe().run(page).response["violations"]
                faults = [each for each in found if each["impact"] in ("serious", "critical")]
                assert [each["id"] for each in faults] == [], (path, scheme)
            page.set_viewport_size({"width": 390, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
