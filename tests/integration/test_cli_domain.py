"""`domain` sends commands, shows states and histories, and tells mistakes in a line."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_cli_running import Cli, ended
from tests.waiting import wait_until

BANK = str(Path(__file__).parents[2] / "pipelines" / "bank.py") + ":bank"

RULES = """
import headrace.eventsourcing as es

def careful(state, command):
    return es.refuse("not today") if command.cents > 1_000 else ()

def broken(state, command):
    return state.nothing
"""

CUSTOMERS = """
from dataclasses import dataclass
import headrace.eventsourcing as es

@dataclass(frozen=True)
class Registered:
    name: str = ""

@dataclass(frozen=True)
class Register:
    name: str

customer = es.aggregate(
    "customer",
    initial=Registered(),
    decide=lambda state, command: Registered(command.name),
    evolve=lambda state, event: event,
    events=[es.event("registered", Registered, personal=["name"])],
    commands=[es.command("register", Register, personal=["name"])],
)
shop = es.Domain("shop", [customer])
quiet = es.Domain("quiet", [customer], record_commands=False)
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "customers.py").write_text(CUSTOMERS)
    return Cli(tmp_path)


def send(cli: Cli, target: str, *words: str, code: int = 0) -> str:
    return cli.run("domain", "send", BANK, target, *words, code=code).stderr


@pytest.fixture
def bank(cli: Cli) -> Cli:
    """An account of which events happened in January and in February."""
    january, february = ("--at", "2026-01-05"), ("--at", "2026-02-05")
    send(cli, "opening", "open", "account=ada", "email=ada@example.org", *january)
    send(cli, "account/ada", "deposit", "cents=10000", "--meta", "who=ada", *january)
    send(cli, "account/ada", "withdraw", '{"cents": 2000}', "--id", "w-1", *february)
    send(cli, "account/ada", "withdraw", "cents=20000", code=3)
    return cli


def state(cli: Cli, *words: str) -> Any:
    return cli.json("domain", "show", BANK, "account/ada", *words)


def test_a_command_is_accepted_or_refused_with_words_and_a_code_of_its_own(cli: Cli) -> None:
    opened = send(cli, "opening", "open", "account=ada", "email=a@b.c")
    assert opened == "Accepted in commit 1: account-opened email=a@b.c\n"
    said = send(cli, "account/ada", "deposit", "cents=5").splitlines()
    assert said[0] == "Accepted in commit 2: money-deposited cents=5"
    assert said[1] == "account/ada is at version 2: email=a@b.c cents=5"
    assert send(cli, "account/ada", "withdraw", "cents=6", code=3) == "Refused: the balance is 5\n"
    other = send(cli, "opening", "open", "account=ben", "email=a@b.c", code=3)
    assert other == "Refused: a@b.c has an account\n"


def test_answers_are_json_too(bank: Cli) -> None:
    words = ("domain", "send", BANK, "account/ada", "withdraw")
    accepted = bank.json(*words, "cents=1")
    assert accepted["events"] == [{"type": "money-withdrawn", "event": {"cents": 1}}]
    assert (accepted["outcome"], accepted["version"], accepted["state"]["cents"]) == (
        *("accepted", 4, 7_999),
    )
    refused = bank.run(*words, "cents=9999", "--json", code=3).stdout
    assert '"outcome": "refused"' in refused and '"reason": "the balance is 7999"' in refused


def test_a_command_with_an_id_has_one_effect(bank: Cli) -> None:
    again = send(bank, "account/ada", "withdraw", "cents=2000", "--id", "w-1")
    assert again.startswith("Before: Accepted in commit 3: money-withdrawn cents=2000\n")
    other = send(bank, "account/ada", "withdraw", "cents=1", "--id", "w-1", code=2)
    assert "given to another command before" in other
    assert state(bank)["state"]["cents"] == 8_000


def test_a_state_is_shown_now_and_at_a_moment_of_its_history(bank: Cli) -> None:
    assert state(bank) == {
        "aggregate": "account/ada",
        "version": 3,
        "commit": 3,
        "state": {"email": "ada@example.org", "cents": 8_000},
    }
    pasts = ("2026-01-31T12:00:00Z", "version:2", "commit:2")
    assert [state(bank, "--at", past)["state"]["cents"] for past in pasts] == [10_000] * 3
    assert state(bank, "--at", "2025-01-01")["version"] == 0
    assert "cents      8000" in bank.run("domain", "show", BANK, "account/ada").stdout


def test_the_history_says_who_did_what_and_what_it_changed(bank: Cli) -> None:
    opened, deposited, withdrawn = bank.lines("domain", "history", BANK, "account/ada")
    assert (opened["type"], opened["at"]) == ("account-opened", "2026-01-05T00:00:00Z")
    assert deposited["metadata"] == {"who": "ada"}
    assert (deposited["before"]["cents"], deposited["after"]["cents"]) == (0, 10_000)
    assert (withdrawn["version"], withdrawn["command"]) == (3, "w-1")
    assert bank.lines("domain", "history", BANK, "account/ada", "--limit", "1") == [withdrawn]
    shown = bank.run("domain", "history", BANK, "account/ada").stdout
    assert "cents: 10000 → 8000" in shown and "who=ada" in shown


def test_commands_are_listed_with_the_reasons_of_those_that_were_refused(bank: Cli) -> None:
    assert [one["target"] for one in bank.lines("domain", "commands", BANK)] == [
        "opening", "account/ada", "account/ada", "account/ada"
    ]  # fmt: skip
    (refused,) = bank.lines("domain", "commands", BANK, "account", "--refused")
    assert (refused["fields"], refused["reason"]) == ({"cents": 20_000}, "the balance is 8000")
    assert len(bank.lines("domain", "commands", BANK, "opening")) == 1
    assert len(bank.lines("domain", "commands", BANK, "account/ada", "--limit", "2")) == 2
    assert bank.lines("domain", "commands", BANK, "account/ben") == []
    assert "refused: the balance" in bank.run("domain", "commands", BANK).stdout


def test_another_decide_is_tried_on_the_history_and_writes_nothing(bank: Cli) -> None:
    with bank.open() as log:
        head = log.head()
    words = ("domain", "what-if", BANK, "account", "rules.py:careful")
    found = bank.lines(*words)
    assert [one["would"] for one in found] == [{"refused": "not today"}] * 3
    assert found[0]["was"] == {"events": [{"type": "money-deposited", "event": {"cents": 10_000}}]}
    assert found[2]["was"] == {"refused": "the balance is 8000"}
    assert bank.lines(*words, "--after", str(found[0]["commit"])) == found[1:]
    assert bank.lines(*words, "--limit", "1") == found[:1]
    said = bank.run(*words).stderr
    assert said == "3 commands to account would be decided differently. Nothing was written\n"
    with bank.open() as log:
        assert log.head() == head


def test_another_decide_may_be_in_the_same_file(bank: Cli) -> None:
    words = ("domain", "what-if", BANK, "account", BANK.replace(":bank", ":decide"))
    assert bank.lines(*words) == []


def test_a_process_manager_compensates_a_transfer_that_is_refused(bank: Cli) -> None:
    transfers = ("domain", "run", BANK, BANK.replace(":bank", ":transfers"), "--until-caught-up")
    send(bank, "account/ada", "transfer", "to=ben", "cents=500")
    assert bank.json(*transfers) == {"process": "transfers", "sent": 2}
    assert bank.run(*transfers).stderr == "transfers sent 0 commands\n"
    *_, sent, returned = bank.lines("domain", "history", BANK, "account/ada")
    assert (sent["type"], sent["after"]["cents"]) == ("transfer-sent", 7_500)
    assert returned["event"] == {"to": "ben", "cents": 500, "reason": "the account is not open"}
    assert returned["after"]["cents"] == 8_000
    (refused,) = bank.lines("domain", "commands", BANK, "account/ben")
    assert refused["reason"] == "the account is not open"


def test_a_process_manager_runs_until_a_signal(bank: Cli) -> None:
    process = bank.start("domain", "run", BANK, BANK.replace(":bank", ":transfers"))
    send(bank, "account/ada", "transfer", "to=ben", "cents=500")
    wait_until(lambda: state(bank)["version"] == 5)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (128 + signal.SIGTERM, "", "transfers sent 2 commands\n")


def test_aggregates_are_listed_with_their_versions(bank: Cli) -> None:
    send(bank, "opening", "open", "account=ben", "email=ben@example.org", "--at", "2026-03-01")
    assert bank.lines("domain", "list", BANK, "account") == [
        {"aggregate": "account/ada", "version": 3, "last": "2026-02-05T00:00:00Z"},
        {"aggregate": "account/ben", "version": 1, "last": "2026-03-01T00:00:00Z"},
    ]
    assert "account/ben" in bank.run("domain", "list", BANK).stdout


def test_a_domain_is_described_without_a_log(cli: Cli) -> None:
    account, opening = cli.lines("domain", "describe", BANK)
    assert {"name": "deposit", "version": 1, "fields": "cents int"} in account["commands"]
    assert opening["decision"] == "opening"
    assert "money-withdrawn" in cli.run("domain", "describe", BANK).stdout
    assert not (cli.folder / "log").exists()


def test_personal_fields_are_opened_with_the_keys(cli: Cli, tmp_path: Path) -> None:
    keys = ("--keys", str(tmp_path / "people.db"))
    cli.run("domain", "send", "customers.py:shop", "customer/c-1", "register", "name=Jane", *keys)
    show = ("domain", "show", "customers:shop", "customer/c-1")
    assert cli.json(*show, *keys)["state"] == {"name": "Jane"}
    assert cli.json(*show)["state"] == {"name": "(sealed)"}
    (sent,) = cli.lines("domain", "commands", "customers:shop", *keys)
    assert sent["fields"] == {"name": "Jane"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("acount/ada", "deposit", "cents=1"), "no aggregate and no decision 'acount'"),
        (("account", "deposit", "cents=1"), "does not say which account"),
        (("account/", "deposit", "cents=1"), "has no id"),
        (("opening/ada", "open"), "so it has no ids"),
        (("account/ada", "depost", "cents=1"), "It has: deposit, withdraw"),
        (("account/ada", "deposit", "cent=1"), "no field 'cent'"),
        (("account/ada", "deposit"), "'cents' is missing"),
        (("account/ada", "deposit", "cents=x"), "'x' is not an int"),
        (("account/ada", "deposit", "cents"), "Write NAME=VALUE. It has: cents int"),
        (("account/ada", "deposit", "cents=1", "cents=2"), "given twice"),
        (("account/ada", "deposit", '{"cents":'), "are not JSON"),
        (("account/ada", "deposit", "cents=1", "--at", "noon"), "'noon' is not a time"),
        (("account/ada", "deposit", "cents=1", "--meta", "ada"), "is not metadata"),
        (("opening", "open", "account=a", "email=e", "--expect", "1"), "Leave out --expect"),
    ],
)
def test_a_mistake_in_a_command_is_told_in_a_line(
    cli: Cli, words: tuple[str, ...], said: str
) -> None:
    told = send(cli, *words, code=2)
    assert said in told and "Traceback" not in told and told.startswith("error: ")


def test_other_mistakes_are_told_in_a_line(bank: Cli) -> None:
    def wrong(*words: str, code: int = 2) -> str:
        return bank.run("domain", *words, code=code).stderr

    assert "does not name a domain" in wrong("list", "bank.py")
    assert "has no process 'decide'" in wrong("run", BANK, BANK.replace(":bank", ":decide"))
    assert "It has: bank" in wrong("list", BANK + "x")
    assert "has no domain 'bank'" in wrong("list", "rules:bank")
    assert "no aggregate 'opening'" in wrong("list", BANK, "opening")
    assert "has no events of the domain 'shop'" in wrong("list", "customers:shop")
    assert "has no events" in wrong("show", BANK, "account/ben")
    assert "has no state" in wrong("show", BANK, "opening")
    assert "not a moment in the history" in wrong("show", BANK, "account/ada", "--at", "42")
    assert "has no version 9" in wrong("show", BANK, "account/ada", "--at", "version:9")
    assert "does not record its commands" in wrong("commands", "customers:quiet")
    assert "has no function 'caerful'" in wrong("what-if", BANK, "account", "rules:caerful")
    said = wrong("what-if", BANK, "account", "rules.py:broken")
    assert "Your code failed: AttributeError" in said and "rules.py:8" in said
    said = wrong("send", BANK, "account/ada", "deposit", "cents=1", "--expect", "1", code=1)
    assert "has version 3" in said
