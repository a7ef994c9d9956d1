"""Work queues in the studio: messages, leases, redeliveries, dead letters, redrive and the past."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Dialog, ViewportSize

from headrace.log import Log
from headrace.queue import NewMessage, WorkQueue, create_queue, open_queue
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


@pytest.fixture
def emails(log: Log) -> Iterator[WorkQueue]:
    """A queue with 7 messages: 2 done, 2 dead, 2 in flight of which 1 for the second time."""
    with create_queue(log, "emails", settings={"backoff": "0s"}) as queue:
        queue.put_many([NewMessage(str(number)) for number in range(7)])
    with open_queue(log, "emails", worker="mailer") as queue:
        taken = queue.take(5)
        queue.accept(*taken[:2])
        queue.release(taken[2], reason="busy")
        queue.reject(taken[3], reason="no such address")
        queue.reject(taken[4], reason=f"full {SCRIPT}")
        queue.take(2)
        yield queue


def test_a_queue_shows_what_waits_what_is_in_flight_and_what_is_dead(
    emails: WorkQueue, client: TestClient
) -> None:
    listed, text = client.get("/queues").text, client.get("/queues/emails").text
    assert '<a href="/queues/emails">emails</a>' in listed
    for fact, value in (("waiting", 1), ("in flight", 2), ("dead letters", 2)):
        assert f'data-fact="{fact}">{value}<' in text
    for words in ("mailer", "no such address", "released", "busy", "1 message in flight"):
        assert words in text
    assert SCRIPT not in text
    found = client.get("/api/queues/emails").json()
    assert (found["waiting"], found["acquired"], found["dead"]) == (1, 2, 2)
    assert sorted(lease["deliveries"] for lease in found["leases"]) == [1, 2]
    assert found["reasons"]["no such address"] == 1
    assert [each["name"] for each in client.get("/api/queues").json()] == ["emails"]


@pytest.mark.parametrize(
    ("form", "left"),
    [({}, 0), ({"reason": "no such"}, 1), ({"asof": "1"}, 2), ({"asof": "2000-01-01T00:00Z"}, 2)],
)
def test_a_redrive_lets_the_chosen_dead_letters_wait_again(
    emails: WorkQueue, client: TestClient, form: dict[str, str], left: int
) -> None:
    answer = client.post("/queues/emails/redrive", data=form)
    assert (answer.status_code, "wait again" in answer.text) == (200, True)
    state = emails.state()
    assert (state.dead, state.waiting) == (left, 3 - left)


@pytest.mark.parametrize("asof", ["soon", "commit:x", "-1"])
def test_a_bad_moment_is_refused_in_words(emails: WorkQueue, client: TestClient, asof: str) -> None:
    answer = client.post("/queues/emails/redrive", data={"asof": asof})
    assert (answer.status_code, "is not a position" in answer.text) == (400, True)
    assert "is not a position" in client.get("/queues/emails", params={"at": asof}).text
    assert emails.state().dead == 2


def test_a_queue_is_shown_as_of_a_commit(emails: WorkQueue, log: Log, client: TestClient) -> None:
    text = client.get("/queues/emails", params={"at": str(log.head())}).text
    assert 'data-fact="unfinished then">3<' in text and 'data-fact="dead letters then">2<' in text
    assert 'data-fact="accepted">2<' in text
    first = client.get("/queues/emails", params={"at": "0"}).text
    assert 'data-fact="unfinished then">0<' in first


def test_a_read_only_studio_redrives_nothing(emails: WorkQueue, log: Log) -> None:
    with client_of(log, read_only=True) as client:
        assert client.post("/queues/emails/redrive").status_code == 403
        assert "hx-post" not in client.get("/queues/emails").text
    assert emails.state().dead == 2


def test_an_unknown_queue_is_answered_in_words(client: TestClient) -> None:
    answer = client.get("/queues/nobody")
    assert (answer.status_code, "nobody" in answer.text) == (404, True)
    assert client.get("/api/queues/nobody").status_code == 404
    assert "There are no queues yet" in client.get("/queues").text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_redrive_asks_first_and_the_page_follows_and_is_accessible(
    emails: WorkQueue, log: Log, browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    with serving(StudioSettings(log=log.url, token=TOKEN)) as settings:
        phone = ViewportSize(width=390, height=800)
        page = patient(browser.new_context(color_scheme=scheme, viewport=phone).new_page())
        page.goto(settings.address)
        page.goto(f"{settings.origin}/queues/emails")
        page.wait_for_selector("form[data-htmx-powered]", state="attached")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
        asked: list[str] = []

        def agree(dialog: Dialog) -> None:
            asked.append(dialog.message)
            dialog.accept()

        page.on("dialog", agree)
        page.get_by_role("button", name="Redrive").click()
        page.wait_for_selector("#redrive .success")
        page.wait_for_selector('[data-fact="dead letters"]:text-is("0")')
        assert asked and emails.state().dead == 0
        page.context.close()
