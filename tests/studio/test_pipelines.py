"""Pipelines on the page: their state in words, and processes that the studio starts and ends."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect

from headrace.errors import Unsupported
from headrace.log import Log, open_log
from headrace.plan.batch import Timing
from headrace.store.location import app_folder
from headrace.studio.live import pipelines
from headrace.studio.live.charts import histogram
from headrace.studio.live.receipt import receipt
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings
from tests.studio.browser import Watched
from tests.studio.piped import (
    APP,
    TOKEN,
    VIEW,
    pageviews,
    process,
    settings_of,
    tamper,
    visits,
    write,
)
from tests.studio.serving import serving
from tests.waiting import wait_until

PAGE = f"/pipelines/{APP}"
REBUILD = f"{PAGE}/rebuild/{VIEW}"
VERBS = ("start", "stop", "drain", "crash", f"rebuild/{VIEW}", f"rebuild/{VIEW}/switch")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(f"file:{tmp_path / 'log'}") as log:
        write(log, visits(200))
        process(log)
        yield log


@pytest.fixture
def settings(log: Log, tmp_path: Path) -> StudioSettings:
    return settings_of(log, tmp_path)


@pytest.fixture
def client(settings: StudioSettings) -> Iterator[TestClient]:
    with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:
        yield client


def state(client: TestClient) -> str:
    """The state of the application on its page."""
    found = re.search(r'class="badge[^"]*">([^<]*)<', client.get(PAGE).text)
    assert found is not None
    return found[1]


def test_the_page_spells_out_the_law_the_watermark_and_what_holds_it_back(
    client: TestClient,
) -> None:
    text = client.get(PAGE).text
    assert "200 rows = 200 counted + 0 late + 0 dead" in text
    assert "2026-01-01 12:01:29Z" in text  # the newest event less ten seconds
    assert "the watermark is before its end" in text or "its grace period" in text


def test_the_page_explains_each_step(client: TestClient) -> None:
    text = client.get(PAGE).text
    for step in pageviews().explain().steps:
        for word, _ in step.facts:
            assert f"<dt>{word}</dt>" in text


def test_a_sample_of_a_step_is_computed_without_spark(client: TestClient) -> None:
    answer = client.get(f"{PAGE}/sample/{VIEW}?rows=5")
    assert answer.text.count("<tr>") == 6
    assert "computed from all 200 rows of pageviews" in answer.text


def test_a_step_that_only_spark_can_compute_shows_what_it_has_stored(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*_: object, **__: object) -> None:
        raise Unsupported("Only Spark can compute these rows anew", hint="")

    monkeypatch.setattr(pipelines, "look", look)
    answer = client.get(f"{PAGE}/sample/{VIEW}?rows=5")
    assert answer.text.count("<tr>") == 6
    assert "As stored by the last run" in answer.text


def test_the_histogram_counts_each_batch_once_in_ranges_that_stay() -> None:
    text = str(histogram([10, 49, 50, 250, 12_000], "Batches", "none"))
    counts = re.findall(r'class="rank-value">(\d+)<', text)
    assert counts == ["2", "1", "0", "1", "0", "0", "0", "0", "1"]
    assert "half within 50 ms" in text
    assert "the longest 12,000 ms" in text
    empty = str(histogram([], "Batches", "No batch yet."))
    assert empty.count('class="rank-value"') == len(counts)


def test_the_page_has_a_histogram_of_each_step(client: TestClient, log: Log) -> None:
    assert "No batch yet." in client.get(PAGE).text
    timing = Timing(1, 40, 0, 3, 230, 10, 20, 30, 3, 100)
    tamper(
        log,
        f"INSERT INTO _headrace_timing (step, timing) "
        f"VALUES ('{VIEW}', '{json.dumps(dataclasses.asdict(timing))}')",
    )
    assert f"{VIEW}: its last 1 batches" in client.get(PAGE).text


# Rebuilding


def built(log: Log) -> None:
    """Let a rebuild of the stand-in end."""
    app_folder(log.url, APP).mkdir(parents=True, exist_ok=True)
    (app_folder(log.url, APP) / "built").touch()


def test_a_rebuild_shows_its_progress_and_what_would_change_and_switches_only_then(
    client: TestClient, log: Log
) -> None:
    assert "Switch to the new version" not in client.get(PAGE).text
    assert client.post(REBUILD).status_code == 200
    wait_until(lambda: "40 rows, 20 rows/s" in client.get(PAGE).text)
    assert client.post(REBUILD).status_code == 400  # one at a time
    built(log)
    wait_until(lambda: "0 removed, 0 added, 5 unchanged" in client.get(PAGE).text)
    text = client.get(PAGE).text
    assert ">compared<" in text
    assert "/&lt;b&gt;" in text
    assert 'data-confirm="Replace the live version' in text
    assert client.post(f"{REBUILD}/switch").status_code == 200
    wait_until(lambda: ">switched<" in client.get(PAGE).text)
    assert "Switch to the new version" not in client.get(PAGE).text


def test_a_rebuild_stops_when_it_is_asked_to(client: TestClient) -> None:
    client.post(REBUILD)
    wait_until(lambda: ">rebuilding<" in client.get(PAGE).text)
    assert client.post(f"{REBUILD}/stop").status_code == 200
    wait_until(lambda: ">stopped<" in client.get(PAGE).text)


def test_a_rebuild_that_fails_says_the_reason(client: TestClient, log: Log) -> None:
    app_folder(log.url, APP).mkdir(parents=True)
    (app_folder(log.url, APP) / "fails").touch()
    client.post(REBUILD)
    wait_until(lambda: "Java was not found" in client.get(PAGE).text)


def test_a_view_that_is_not_there_is_not_rebuilt(client: TestClient) -> None:
    answer = client.post(f"/pipelines/{APP}/rebuild/nothing")
    assert (answer.status_code, VIEW in answer.text) == (400, True)


def test_what_is_not_there_is_refused_in_words(client: TestClient) -> None:
    for path in ("/pipelines/nothing", f"{PAGE}/sample/nothing", "/pipelines/%3Cscript%3E"):
        answer = client.get(path)
        assert (answer.status_code, "There is no" in answer.text) == (404, True)
        assert "<script>" not in answer.text


def test_a_named_application_starts_and_stops(client: TestClient) -> None:
    assert state(client) == "stopped"
    assert client.post(f"{PAGE}/start").status_code == 200
    wait_until(lambda: state(client) == "running")
    assert client.post(f"{PAGE}/start").status_code == 400
    assert client.post(f"{PAGE}/stop").status_code == 200
    wait_until(lambda: state(client) == "stopped")


def test_an_application_that_was_not_named_cannot_be_touched(log: Log, tmp_path: Path) -> None:
    settings = settings_of(log, tmp_path, named=False)
    with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:
        assert "200 rows = 200 counted" in client.get(PAGE).text
        for verb in VERBS:
            answer = client.post(f"{PAGE}/{verb}")
            assert (answer.status_code, "The studio" in answer.text) == (400, True)
        assert not (app_folder(log.url, APP) / "run.lock").exists()


def test_a_read_only_studio_starts_and_ends_nothing(log: Log, tmp_path: Path) -> None:
    settings = settings_of(log, tmp_path, read_only=True)
    with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:
        for verb in VERBS:
            assert client.post(f"{PAGE}/{verb}").status_code == 403
        assert "<form" not in client.get(PAGE).text.partition("What each step does")[0]


def test_what_runs_elsewhere_is_shown_and_never_killed(
    client: TestClient, settings: StudioSettings
) -> None:
    with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as other:
        other.post(f"{PAGE}/start")
        wait_until(lambda: state(other) == "running")
        assert "elsewhere, as process" in client.get(PAGE).text
        assert client.post(f"{PAGE}/crash").status_code == 400
        assert client.post(f"{PAGE}/stop").status_code == 400
        assert state(other) == "running"


def test_a_failure_says_the_reason_that_the_process_gave(client: TestClient, log: Log) -> None:
    folder = app_folder(log.url, APP)
    folder.mkdir(parents=True)
    (folder / "fails").touch()
    client.post(f"{PAGE}/start")
    wait_until(lambda: state(client) == "failed")
    text = client.get(PAGE).text
    assert "It failed: Java was not found" in text
    assert "Install it" in text


def test_a_process_that_somebody_else_kills_has_failed(client: TestClient) -> None:
    client.post(f"{PAGE}/start")
    wait_until(lambda: state(client) == "running")
    os.kill(_pid(client), signal.SIGKILL)
    wait_until(lambda: state(client) == "failed")
    assert "ended by SIGKILL" in client.get(PAGE).text


def test_everything_started_ends_with_the_studio(settings: StudioSettings) -> None:
    with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:
        client.post(f"{PAGE}/start")
        wait_until(lambda: state(client) == "running")
        pid = _pid(client)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def _pid(client: TestClient) -> int:
    found = re.search(r"process (\d+), started here", client.get(PAGE).text)
    assert found is not None
    return int(found[1])


def test_a_receipt_recounts_every_result_from_the_log(log: Log) -> None:
    write(log, visits(40, start=200))  # after the position of the results: not theirs
    found = receipt(pageviews(), log)
    (step,) = found.steps
    assert (found.lost, found.duplicated, found.holds) == (0, 0, True)
    assert (step.in_log, step.accounted, step.results) == (200, 200, 6)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (f"UPDATE _headrace_panes_{VIEW} SET hits = hits + 1 WHERE url = '/0'", (2, 0, 0)),
        (f"DELETE FROM _headrace_panes_{VIEW} WHERE url = '/0'", (0, 2, 0)),
    ],
)
def test_a_receipt_finds_results_that_are_wrong(
    log: Log, change: str, wrong: tuple[int, int, int]
) -> None:
    tamper(log, change)
    (step,) = receipt(pageviews(), log).steps
    assert ((step.differ, step.missing, step.extra), step.holds) == (wrong, False)


@pytest.mark.parametrize(("by", "lost", "duplicated"), [(-3, 3, 0), (4, 0, 4)])
def test_a_receipt_finds_rows_that_were_lost_or_duplicated(
    log: Log, by: int, lost: int, duplicated: int
) -> None:
    tamper(
        log,
        "UPDATE _headrace_step SET law = json_set(law, '$.rows', "
        f"json_extract(law, '$.rows') + ({by}))",
    )
    found = receipt(pageviews(), log)
    assert (found.lost, found.duplicated, found.holds) == (lost, duplicated, False)


def test_a_receipt_says_what_it_did_not_compare(log: Log) -> None:
    (step,) = receipt(pageviews(), log, most=100).steps
    assert (step.results, step.in_log) == (None, 200)
    assert "more than 100 rows" in step.note


def test_the_crash_button_kills_restarts_and_gives_a_receipt(
    browser: Browser, settings: StudioSettings
) -> None:
    with serving(settings) as served, browser.new_context() as context:
        page = context.new_page()
        watched = Watched(page)
        page.goto(served.address)
        page.on("dialog", lambda dialog: dialog.accept())
        watched.open(served.origin + PAGE)
        page.get_by_role("button", name="Start").click()
        crash = page.get_by_role("button", name="Crash it")
        crash.click()
        receipt = page.locator("#crash[data-holds=true]")
        expect(receipt.locator('[data-fact="rows lost"]')).to_have_text("0")
        expect(receipt.locator('[data-fact="rows duplicated"]')).to_have_text("0")
        expect(receipt.locator('[data-fact="results that differ"]')).to_have_text("0")
        expect(page.locator("#pipeline .badge").first).to_have_text("running")
        expect(page.locator(".series canvas")).to_be_visible()
        assert watched.errors == []
