"""Captured databases and stores of views on their pages: what the log and the notes say."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi.testclient import TestClient
from playwright.sync_api import Browser

from headrace.application.verify.result import Difference, HopResult, Verified, Write, keep
from headrace.cdc import read_state, run
from headrace.cdc.attachment import Attachment, remember
from headrace.cdc.notes import CaptureNote, capture_note, write_capture_note
from headrace.cdc.opening import open_source
from headrace.cdc.sqlite.source import SqliteSource
from headrace.cdc.state import (
    Notice,
    Reached,
    Snapshot,
    TableState,
    ensure_state_topic,
    write_state,
)
from headrace.cdc.supervised import SupervisedRun
from headrace.clock import SECOND, SystemClock
from headrace.log import Log
from headrace.store.status import StoreStatus, note
from headrace.studio.settings import StudioSettings
from tests.studio.browser import patient
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


def test_a_capture_that_was_killed_is_silent_and_one_that_waits_says_why(
    log: Log, client: TestClient
) -> None:
    captured(log)
    assert ">not running<" in client.get("/sources").text
    facts = {"slot status": "lost", "WAL held back": "3.0 GiB"}
    now = SystemClock().now()
    note = CaptureNote("shop", "postgresql://shop@db/shop", "running", now, 2048, "bytes", facts)
    write_capture_note(log, note)
    text = client.get("/sources").text
    assert ">running<" in text
    assert 'data-fact="lag">2.0 KiB<' in text
    assert 'data-fact="WAL held back">3.0 GiB<' in text
    assert 'class="bad"><dt>slot status<' in text
    write_capture_note(log, replace(note, state="waiting", trouble=f"refused {SCRIPT}"))
    text = client.get("/sources").text
    assert ">waiting<" in text
    assert "refused &lt;script&gt;" in text
    write_capture_note(log, replace(note, at=now - 60 * SECOND))
    assert ">silent<" in client.get("/sources").text
    write_capture_note(log, replace(note, state="stopped", at=now - 60 * SECOND))
    assert ">stopped<" in client.get("/sources").text
    (found,) = client.get("/api/sources").json()
    assert found["note"]["facts"] == facts


def test_a_run_of_a_capture_notes_what_its_database_says(
    log: Log, client: TestClient, tmp_path: Path
) -> None:
    shop = tmp_path / "shop.db"
    with sqlite3.connect(shop) as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    db.close()
    attachment = Attachment("shop", "sqlite", str(shop), ("main.orders",))
    remember(log, attachment)
    assert 'id="source-shop"' in client.get("/sources").text
    with open_source(attachment) as source:
        source.attach()
    SupervisedRun(log, attachment, until_caught_up=True).run()
    note = capture_note(log, "shop")
    assert note is not None
    assert (note.state, note.lag, note.unit) == ("stopped", 0, "changes")
    assert ">stopped<" in client.get("/sources").text


def test_the_last_verification_shows_each_hop_and_the_rows_that_differ(
    log: Log, client: TestClient
) -> None:
    assert "No view was verified yet" in client.get("/stores").text
    row = Difference("different", {"id": 7}, {"name": "chair"}, {"name": SCRIPT}, Write(12, 1))
    hops = (
        HopResult("table in shop", "topic shop.main.items", 40, 40, commit=12),
        HopResult("view items", "search:", 40, 40, different=1, rows_differing=(row,)),
        HopResult("view items", "redis://localhost", error="it is down"),
    )
    keep(log.home, Verified("app", "items", 1_000_000, hops))
    text = client.get("/stores").text
    for words in (">equal<", ">1 difference<", ">not compared<", "it is down"):
        assert words in text, words
    for words in ("id 7", "name chair", "name &lt;script&gt;"):
        assert words in text, words
    assert SCRIPT not in text
    (found,) = client.get("/api/verified").json()
    assert [hop["different"] for hop in found["hops"]] == [0, 1, 0]
    assert not found["proven"]


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
    facts = {"slot": "headrace_shop", "slot status": "extended", "WAL held back": "1.2 GiB"}
    now = SystemClock().now()
    write_capture_note(
        log, CaptureNote("shop", "postgresql://shop@db/shop", "running", now, 9, "bytes", facts)
    )
    stored(log, state="following", last_rows=3)
    hops = (HopResult("view products", "redis://localhost", 40, 40, missing=2, commit=12),)
    keep(log.home, Verified("app", "products", now, hops))
    with (
        serving(StudioSettings(log=log.url, token=TOKEN)) as settings,
        browser.new_context() as context,
    ):
        page = patient(context.new_page())
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
