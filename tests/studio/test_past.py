"""The overview as of a commit: what is kept is as it was, and the rest says that it is not kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect

from headrace.application.doctor.records import Records
from headrace.log import Log, open_log
from headrace.plan.law import Law
from headrace.studio.live.past import pipeline_then, records_then, views_then
from headrace.studio.server import studio
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


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """Five commits of 40 rows, of which the first four were processed in two batches."""
    with open_log(f"file:{tmp_path_factory.mktemp('past') / 'log'}") as log:
        write(log, visits(160))
        process(log)
        write(log, visits(40, start=160))
        yield log


def last_read(log: Log) -> int:
    """The last commit that the pipeline has read."""
    with Records(log.home, APP) as records:
        record = records.of(VIEW)
        assert record is not None
        return record.reached["pageviews"].commit


def test_as_of_the_last_batch_it_is_what_the_pipeline_has_stored(log: Log) -> None:
    (step,) = pipeline_then(log, APP, pageviews(), last_read(log)).steps
    with Records(log.home, APP) as records:
        record = records.of(VIEW)
    assert record is not None
    assert (step.law, step.frontier) == (record.law, record.frontier)


def test_as_of_an_older_commit_later_rows_and_batches_are_not_there(log: Log) -> None:
    found = [pipeline_then(log, APP, pageviews(), commit).steps[0] for commit in (1, 2, 3, 4, 7)]
    assert [step.law.counted for step in found] == [0, 80, 80, 160, 160]
    assert [step.lag for step in found] == [40, 0, 40, 0, 40]
    assert records_then(log, ["pageviews"], 3) == {"pageviews": 120}


def test_before_the_first_commit_nothing_had_happened(log: Log) -> None:
    (step,) = pipeline_then(log, APP, pageviews(), 0).steps
    assert (step.law, step.watermark, step.lag) == (Law(), None, 0)
    assert records_then(log, ["pageviews"], 0) == {"pageviews": 0}
    (view,) = views_then(log, [pipeline_then(log, APP, pageviews(), 0)], 0)
    assert view.changes in (0, None)


def test_batches_that_are_no_longer_kept_are_said_to_be(tmp_path: Path) -> None:
    with open_log(f"file:{tmp_path / 'log'}") as log:
        write(log, visits(160))
        process(log)
        tamper(log, "DELETE FROM _headrace_law WHERE id = (SELECT min(id) FROM _headrace_law)")
        now = pipeline_then(log, APP, pageviews(), 1)
        assert now.unknown == f"{VIEW}: its batches of that time are no longer kept"
        settings = settings_of(log, tmp_path)
        with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:
            text = client.get("/?asof=1").text
            assert "its batches of that time are no longer kept" in text
            assert "committed offsets and lag of consumer groups" in text


def test_a_commit_after_the_last_is_the_last_and_no_number_is_refused(
    log: Log, tmp_path: Path
) -> None:
    settings = settings_of(log, tmp_path)
    with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:
        assert f"As of commit {log.head()}" in client.get("/?asof=99999").text
        assert client.get("/?asof=x").status_code == 422


def test_the_slider_shows_the_past_and_nothing_jumps(
    browser: Browser, log: Log, tmp_path: Path
) -> None:
    with serving(settings_of(log, tmp_path)) as settings, browser.new_context() as context:
        page = context.new_page()
        watched = Watched(page)
        page.goto(settings.address)
        expect(page.locator(".on-screen .drawing")).to_contain_text("200 records")
        before = page.locator(".on-screen .drawing").bounding_box()
        page.locator("#history input[type=range]").fill("2")
        expect(page.locator("#overview[data-asof='2'] .on-screen .drawing")).to_contain_text(
            "80 records"
        )
        assert page.locator(".on-screen .drawing").bounding_box() == before
        assert re.search(r"asof=2$", page.url)
        page.get_by_role("link", name="Back to now").click()
        expect(page.locator(".on-screen .drawing")).to_contain_text("200 records")
        assert watched.errors == []
