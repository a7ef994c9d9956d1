"""The studio runs the page-view pipeline and kills it: its recount agrees with what is stored."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headrace.cli.demonstration.stage import pipeline_file
from headrace.cli.loading import load_app
from headrace.log import Log, open_log
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings
from tests.waiting import wait_until

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TOKEN = {"authorization": "Bearer t"}
PAGE = "/pipelines/pageviews"


def write(log: Log, first: int, count: int) -> None:
    """Page views of some minutes, most in order, and some too late."""
    with log.producer() as producer, producer.transaction() as transaction:
        for n in range(first, first + count):
            late = timedelta(minutes=20) if n > 2_000 and n % 50 == 0 else timedelta(0)
            at = NOON + timedelta(seconds=n) - late
            transaction.send("pageviews", {"url": f"/{n % 5}", "user": f"u{n % 9}", "at": at})


@pytest.mark.slow
def test_a_pipeline_killed_from_the_page_recovers_with_nothing_lost_or_duplicated(
    tmp_path: Path,
) -> None:
    reference = f"{pipeline_file()}:app"
    app = load_app(reference)
    with open_log(f"file:{tmp_path / 'log'}") as log:
        log.ensure_topic(app.topics["pageviews"])
        write(log, 0, 3_000)
        program = (sys.executable, "-m", "headrace.cli.main")
        settings = StudioSettings(
            log.url, (reference,), token="t", declared={app.name: app}, program=program
        )
        with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:

            def shows(text: str) -> bool:
                page = client.get(PAGE).text
                assert ">failed<" not in page, page
                return re.search(text, page) is not None

            assert client.post(f"{PAGE}/start").status_code == 200
            wait_until(lambda: shows("3,000 rows = "))
            write(log, 3_000, 3_000)
            assert client.post(f"{PAGE}/crash").status_code == 200
            write(log, 6_000, 1_000)
            wait_until(lambda: shows("data-holds="))
            assert shows('data-fact="rows lost">0<')
            assert shows('data-fact="rows duplicated">0<')
            assert shows('data-fact="results that differ">0<')
            assert shows("estimates are not compared: people")
            wait_until(lambda: shows(r"7,000 rows = [\d,]+ counted \+ [1-9]\d* late"))
