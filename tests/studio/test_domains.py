"""Domains in the studio: histories, states at any moment, refused commands, and sealed fields."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, ViewportSize, expect

import headrace.eventsourcing as es
from headrace.cli.loading import load_apps_and_domains
from headrace.errors import UserError
from headrace.log import Log
from headrace.studio.live import aggregate_past
from headrace.studio.settings import StudioSettings
from tests.bank import ACCOUNT, ONE_ACCOUNT, Deposit, Empty, Open, OpenOnly, Withdraw, account, bank
from tests.customers import Order, Register, customers
from tests.studio.browser import patient
from tests.studio.logs import TOKEN, client_of, log_at
from tests.studio.serving import serving

SCRIPT = "<script>alert(1)</script>"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
API = "/api/domains/bank/account"
BANK = bank()
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with log_at(tmp_path) as log:
        yield log


@pytest.fixture
def store(log: Log) -> Iterator[es.Store]:
    """An account with eight events in six commits, and two refused commands."""
    with BANK.open(log) as store:
        commands = [Open("mia"), Deposit(5), Withdraw(9), Deposit(7), Empty(), Deposit(1)]
        for hour, command in enumerate(commands):
            store.handle(
                ACCOUNT, "a", command, at=NOON + timedelta(hours=hour),
                metadata={"who": f"mia {SCRIPT}", "why": "pay day"},
            )  # fmt: skip
        store.handle(ACCOUNT, "nobody", Deposit(1), at=NOON)
        yield store


@pytest.fixture
def client(log: Log) -> Iterator[TestClient]:
    with client_of(log, domains=[BANK]) as client:
        yield client


def test_a_domain_lists_its_aggregates_and_the_commands_refused(
    store: es.Store, client: TestClient
) -> None:
    store.decide_across(ONE_ACCOUNT, OpenOnly("mia", "b"))
    listed, text = client.get("/domains").text, client.get("/domains/bank").text
    assert '<a href="/domains/bank">bank</a>' in listed
    assert '<a href="/domains/bank/account?id=a">account/a</a>' in text
    for reason in ("the balance is 5", "the account is not open", "mia has an account"):
        assert reason in text
    assert SCRIPT not in text
    (known,) = client.get("/api/domains").json()
    assert (known["declared"], known["aggregates"], known["events"]) == (True, ["account"], 16)
    found = client.get("/api/domains/bank").json()
    assert [(each["aggregate"], each["version"]) for each in found["aggregates"]] == [
        ("account/a", 16)
    ]
    assert [each["aggregate"] for each in found["refused"]] == [
        "one-account", "account/nobody", "account/a",
    ]  # fmt: skip


def test_the_history_has_who_what_when_and_why_with_the_state_before_and_after(
    store: es.Store, client: TestClient
) -> None:
    text = client.get("/domains/bank/account", params={"id": "a"}).text
    for words in ("money-withdrawn", "pay day", "2026-03-01 17:00:00Z", "the balance is 5"):
        assert words in text
    assert SCRIPT not in text and "&lt;script&gt;" in text
    found = client.get(API, params={"id": "a", "limit": 1_000}).json()
    assert [each["version"] for each in found["history"]] == list(range(16, 0, -1))
    for newer, older in zip(found["history"], found["history"][1:], strict=False):
        assert newer["before"] == older["after"]
    assert found["state"] == found["history"][0]["after"] == {"owner": "mia", "balance": 1}
    assert [each["reason"] for each in found["commands"]].count("the balance is 5") == 1


def states(store: es.Store) -> Iterator[tuple[dict[str, Any], Any]]:
    """Moments as a page takes them, each with the state that the store loads."""
    for version in range(17):
        yield {"version": version}, store.load(ACCOUNT, "a", version=version)
    for commit in range(store.log.head() + 1):
        yield {"at": commit}, store.load(ACCOUNT, "a", commit=commit)
    for hour in range(7):
        at = NOON + timedelta(hours=hour, minutes=-30)
        yield {"at": at.isoformat()}, store.load(ACCOUNT, "a", at=at)


def test_a_state_is_that_of_the_store_at_every_version_commit_and_time(
    store: es.Store, client: TestClient
) -> None:
    for moment, loaded in states(store):
        found = client.get(API, params={"id": "a", **moment}).json()
        assert found["state"] == ACCOUNT.codec.data(loaded.state), moment
        assert found["version"] == loaded.version, moment
        assert found["commit"] == moment.get("at", loaded.commit) or isinstance(moment["at"], str)
        assert [each["version"] for each in found["history"]] == list(range(loaded.version, 0, -1))


def test_pages_of_a_long_history_follow_each_other_and_read_only_what_they_show(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[Any] = []

    def watched(state: Any, event: Any) -> Any:
        folded.append(event)
        return ACCOUNT.evolve(state, event)

    watching = account(evolve=watched, snapshot_every=50)
    domain = bank(watching)
    with domain.open(log) as store:
        store.handle(watching, "a", Open("mia"))
        for _ in range(12):
            store.handle(watching, "a", Deposit(100))
            store.handle(watching, "a", Empty())
        store.handle(watching, "a", Deposit(1))
    with client_of(log, domains=[domain]) as client:
        folded.clear()
        seen: list[int] = []
        older: int | None = 1_214
        while older:
            rows = client.get(API, params={"id": "a", "version": older}).json()["history"]
            seen += [each["version"] for each in rows]
            older = seen[-1] - 1
            assert len(rows) <= aggregate_past.ROWS
        assert seen == list(range(1_214, 0, -1))
        # A page folds what it shows, the rest of that commit, and what came since a snapshot.
        pages = -(-1_214 // aggregate_past.ROWS)
        assert len(folded) < pages * (aggregate_past.ROWS + 2 * 101 + 50)
        shown = client.get("/domains/bank/account", params={"id": "a"}).text
        assert "version=1194" in shown and "Older events" in shown


def test_a_long_history_without_snapshots_is_listed_without_states(
    store: es.Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate_past, "FOLDED", 10)
    domain = bank(account(snapshot_every=None))
    with client_of(log, domains=[domain]) as client:
        found = client.get(API, params={"id": "a"}).json()
        assert (found["state"], len(found["history"])) == (None, 16)
        assert "snapshot_every" in client.get("/domains/bank/account", params={"id": "a"}).text
        answer = client.get(API, params={"id": "a", "at": NOON.isoformat()})
        assert (answer.status_code, "reads all 16 events" in answer.text) == (400, True)


def test_a_failure_in_the_code_of_a_user_is_answered_in_words(store: es.Store, log: Log) -> None:
    def fails(state: Any, event: Any) -> Any:
        raise ZeroDivisionError(SCRIPT)

    with client_of(log, domains=[bank(account(evolve=fails, snapshot_every=None))]) as client:
        answer = client.get("/domains/bank/account?id=a")
        assert (answer.status_code, SCRIPT in answer.text) == (400, False)
        assert "A function of &#39;account&#39; failed: ZeroDivisionError" in answer.text


def test_personal_fields_stay_sealed(log: Log, tmp_path: Path) -> None:
    shop = customers()
    customer = shop.aggregates[0]
    with es.KeyStore(tmp_path / "keys.db") as keys, shop.open(log, keys=keys) as store:
        for _ in range(2):
            store.handle(
                customer, "c", Register("Ada Lovelace", "ada@example.org"), metadata={"why": "born"}
            )
        store.handle(customer, "c", Order("book", "Charles", "f"))
    with client_of(log, domains=[shop]) as client:
        paths = ("/domains/shop", "/domains/shop/customer?id=c", "/api/domains/shop/customer?id=c")
        for path in paths:
            text = client.get(path).text
            assert es.SEALED in text
            assert not any(word in text for word in ("Ada", "ada@", "Charles", "born")), path


@pytest.mark.parametrize(
    "path",
    [
        "/domains/nobody", "/domains/bank/nobody?id=a", "/domains/bank/account?id=b",
        "/domains/bank/account?id=", f"/domains/bank/account?id={SCRIPT}",
    ],
)  # fmt: skip
def test_unknown_names_are_answered_in_words(
    store: es.Store, client: TestClient, path: str
) -> None:
    answer = client.get(path)
    assert (answer.status_code, SCRIPT in answer.text) == (404, False)
    assert client.get(f"/api{path}").status_code == 404


@pytest.mark.parametrize("at", ["soon", "latest", "commit:x", "-1"])
def test_a_bad_moment_is_refused_in_words(store: es.Store, client: TestClient, at: str) -> None:
    answer = client.get("/domains/bank/account", params={"id": "a", "at": at})
    assert (answer.status_code, 'role="alert"' in answer.text) == (400, True)


def test_an_id_may_be_any_text(store: es.Store, client: TestClient) -> None:
    for id in ("../..", "a/b?c&d", "ü %41", SCRIPT):
        store.handle(ACCOUNT, id, Open("mia"))
        found = client.get(API, params={"id": id}).json()
        assert (found["aggregate"], found["version"]) == (f"account/{id}", 1)
        assert SCRIPT not in client.get("/domains/bank/account", params={"id": id}).text


def test_a_studio_makes_no_topics_and_shows_domains_that_nobody_declares(log: Log) -> None:
    with client_of(log, read_only=True, domains=[BANK]) as client:
        assert "no events yet" in client.get("/domains/bank").text
        assert client.get("/domains/bank/account?id=a").status_code == 404
    assert log.topics() == []
    with BANK.open(log):
        pass
    with client_of(log) as client:
        assert "not declared here" in client.get("/domains").text
        assert client.get("/api/domains").json()[0]["declared"] is False


def test_a_module_names_its_domains(tmp_path: Path) -> None:
    file = tmp_path / "shops.py"
    source = (
        "import headrace as hr\nfrom tests.bank import bank\napp = hr.App('a')\nbank = bank()\n"
    )
    file.write_text(source)
    for names in (["app"], ["bank"], ["app", "bank"]):
        apps, domains = load_apps_and_domains([f"{file}:{name}" for name in names])
        assert (list(domains), len(apps)) == (["bank"], "app" in names)
    file.write_text(f"{source}other = type(bank)('bank', bank.aggregates)\n")
    with pytest.raises(UserError, match="two domains 'bank'"):
        load_apps_and_domains([f"{file}:app"])


def test_the_slider_shows_states_and_the_page_follows_and_is_accessible(
    store: es.Store, log: Log, browser: Browser
) -> None:
    settings = StudioSettings(log=log.url, token=TOKEN, domains={"bank": BANK})
    with serving(settings) as settings:
        phone = ViewportSize(width=390, height=800)
        page = patient(browser.new_context(viewport=phone).new_page())
        page.goto(settings.address)
        for path in ("/domains", "/domains/bank", "/domains/bank/account?id=a"):
            page.goto(f"{settings.origin}{path}")
            page.wait_for_selector("table")
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                found = Axe().run(page)
                assert found.violations_count == 0, found.generate_report()
            root = "document.documentElement"
            assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
        page.wait_for_selector("form[data-htmx-powered]", state="attached")
        state = page.locator("#state tbody tr").last
        store.handle(ACCOUNT, "a", Deposit(41))
        expect(state).to_have_text("balance142")
        page.locator("input[name=version]").fill("2")
        expect(state).to_have_text("balance05")
        assert "version=2" in page.url
        page.reload()
        expect(state).to_have_text("balance05")
        page.get_by_role("link", name="Back to now").click()
        expect(state).to_have_text("balance142")
        page.context.close()
