"""Personal fields in a log: sealed in every file, opened with the keys, gone when forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headrace.eventsourcing as es
from headrace.errors import InvalidDomain, InvalidSetting, ReusedCommand, SubjectForgotten
from headrace.log import Commit, Log
from headrace.log.file.log import FileLog
from tests.customers import (
    Customer,
    Order,
    Ordered,
    Register,
    Registered,
    RegisterOnly,
    Remind,
    Surprise,
    customers,
)
from tests.unit.eventsourcing.test_keys import files_with, raw_keys

NAME, EMAIL, FRIEND, WHY = "Jane Qwertzu", "jane@qwertzu.example", "Paul Asdfgh", "Yxcvbn called"
SECRETS = (NAME, EMAIL, FRIEND, WHY)

SHOP = customers()
(CUSTOMER,) = SHOP.aggregates
ONLY, SURPRISE = SHOP.decisions


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with FileLog(tmp_path / "log") as log:
        yield log


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[es.KeyStore]:
    with es.KeyStore(tmp_path / "keys" / "people.db") as keys:
        yield keys


@pytest.fixture
def store(log: Log, keys: es.KeyStore) -> Iterator[es.Store]:
    with SHOP.open(log, keys=keys) as store:
        yield store


def busy(store: es.Store) -> es.Store:
    """The store after Jane has registered, ordered a gift for Paul, and been refused.

    Each name is in the reason of a refusal whose command does not have it.
    """
    customer, why = store.domain.aggregates[0], {"who": "clerk-3", "why": WHY}
    store.handle(customer, "c-7", Register(NAME, EMAIL), id="r-1", metadata=why)
    store.handle(customer, "c-7", Order("book", FRIEND, "f-1"), id="o-1", metadata=why)
    for answer, reason in (
        (store.handle(customer, "c-7", Remind()), f"{NAME} owes nothing"),
        (store.decide_across(store.domain.decisions[1], Surprise("f-1")), f"{FRIEND} has a gift"),
        (store.handle(customer, "c-7", Register(NAME, None), id="r-2", metadata=why),
         f"{NAME} is known"),
    ):  # fmt: skip
        assert isinstance(answer, es.Refused) and answer.reason == reason
    return store


def in_clear(folder: Path, log: Log) -> list[str]:
    """The secrets that any file has, or any row of any topic, compressed or not."""
    stored: list[Any] = [
        batch.data.to_pylist()
        for topic in log.topics()
        for batch in log.read(topic.name, start=Commit(0), stop=Commit(log.head()))
    ]
    return [
        secret
        for secret in SECRETS
        if files_with(folder, secret.encode()) or secret in repr(stored)
    ]


def test_no_file_and_no_row_has_a_personal_field_in_clear(
    store: es.Store, log: Log, tmp_path: Path
) -> None:
    busy(store)
    assert in_clear(tmp_path, log) == []


def test_without_a_declaration_the_search_finds_all_of_them(log: Log, tmp_path: Path) -> None:
    """The test before is able to fail."""
    with customers(sealed=False).open(log) as store:
        busy(store)
    assert in_clear(tmp_path, log) == list(SECRETS)
    assert all(files_with(tmp_path / "log", secret.encode()) for secret in SECRETS)


def test_with_the_keys_everything_reads_as_it_was_written(store: es.Store) -> None:
    busy(store)
    assert store.load(CUSTOMER, "c-7").state == Customer(NAME, EMAIL, 1)
    first, second = store.history(CUSTOMER, "c-7")
    assert (first.event.event, second.event.event) == (
        Registered(NAME, EMAIL),
        Ordered("book", FRIEND, "f-1"),
    )
    assert first.event.metadata == {"who": "clerk-3", "why": WHY}
    *_, last = store.commands(CUSTOMER, "c-7")
    assert (last.reason, last.command) == (f"{NAME} is known", Register(NAME, None))
    assert last.metadata == {"who": "clerk-3", "why": WHY}


@pytest.mark.parametrize("opened_again", [False, True])
def test_a_forgotten_subject_is_gone_from_states_events_commands_and_snapshots(
    log: Log, keys: es.KeyStore, opened_again: bool
) -> None:
    with SHOP.open(log, keys=keys) as store:
        busy(store)
        store.load(CUSTOMER, "c-7")
        if not opened_again:
            keys.forget("customer/c-7")
            check_forgotten(store)
    if opened_again:
        keys.forget("customer/c-7")
        with SHOP.open(log, keys=keys) as store:
            check_forgotten(store)


def check_forgotten(store: es.Store) -> None:
    gone = Customer(es.FORGOTTEN, None, 1)
    assert store.load(CUSTOMER, "c-7").state == gone
    assert store.load(CUSTOMER, "c-7", version=2).state == gone
    assert store.load(CUSTOMER, "c-7", commit=store.log.head()).state == gone
    first, second = store.history(CUSTOMER, "c-7")
    assert first.event.event == Registered(es.FORGOTTEN, None)
    assert first.event.metadata == {"who": "clerk-3", "why": es.FORGOTTEN}
    assert second.event.event == Ordered("book", FRIEND, "f-1")
    *_, last = store.commands(CUSTOMER, "c-7")
    assert (last.reason, last.command) == (es.FORGOTTEN, Register(es.FORGOTTEN, None))


def test_two_subjects_of_one_event_are_forgotten_one_by_one(
    store: es.Store, keys: es.KeyStore
) -> None:
    busy(store)
    keys.forget("friend/f-1")
    _, second = store.history(CUSTOMER, "c-7")
    assert second.event.event == Ordered("book", None, "f-1")
    assert second.after == Customer(NAME, EMAIL, 1)


def test_an_aggregate_goes_on_after_its_subject_is_forgotten(
    store: es.Store, keys: es.KeyStore
) -> None:
    busy(store)
    keys.forget("customer/c-7")
    for number in range(2, 6):  # snapshots among them
        answer = store.handle(CUSTOMER, "c-7", Order("pen"))
        assert answer.state == Customer(es.FORGOTTEN, None, number)
    with pytest.raises(SubjectForgotten, match="customer/c-7"):
        store.handle(CUSTOMER, "c-7", Order("pen"), metadata={"why": WHY})


def test_a_repeated_command_has_its_answer_after_its_subject_is_forgotten(
    store: es.Store, keys: es.KeyStore
) -> None:
    first = busy(store).handle(CUSTOMER, "c-7", Register(NAME, EMAIL), id="r-1")
    assert first.repeated and first.state.name == NAME
    keys.forget("customer/c-7")
    again = store.handle(CUSTOMER, "c-7", Register(NAME, EMAIL), id="r-1")
    assert isinstance(again, es.Handled) and again.repeated
    assert again.events == (Registered(es.FORGOTTEN, None),)
    with pytest.raises(ReusedCommand):
        store.handle(CUSTOMER, "c-7", Order("book", None, "f-2"), id="o-1")


def test_an_error_about_an_id_shows_no_personal_field(store: es.Store) -> None:
    busy(store)
    with pytest.raises(ReusedCommand, match="'register' to 'customer/c-7'") as caught:
        store.handle(CUSTOMER, "c-7", Register("Eve", None), id="r-1")
    assert "another name, email" in caught.value.message
    assert not any(secret in repr(caught.value) + str(caught.value) for secret in SECRETS)


def test_without_the_keys_fields_read_as_sealed_and_cannot_be_written(
    store: es.Store, log: Log
) -> None:
    busy(store)
    with SHOP.open(log) as blind:
        assert blind.load(CUSTOMER, "c-7").state == Customer(es.SEALED, None, 1)
        *_, last = blind.commands(CUSTOMER, "c-7")
        assert last.reason == es.SEALED
        with pytest.raises(InvalidDomain, match="no key store"):
            blind.handle(CUSTOMER, "c-8", Register("Eve", None))


def test_a_rule_over_hidden_tags_holds(store: es.Store, log: Log, tmp_path: Path) -> None:
    first = store.decide_across(ONLY, RegisterOnly("c-1", NAME, EMAIL))
    second = store.decide_across(ONLY, RegisterOnly("c-2", "Eve", EMAIL))
    assert isinstance(first, es.Handled)
    assert isinstance(second, es.Refused) and second.reason == f"{EMAIL} is taken"
    found = list(store.events([es.match(tags=[es.hidden(f"email:{EMAIL}")])]))
    assert [one.aggregate for one in found] == ["customer/c-1"]
    assert in_clear(tmp_path, log) == []


def test_no_file_has_the_key_once_forget_has_returned(
    store: es.Store, keys: es.KeyStore, tmp_path: Path
) -> None:
    busy(store)
    made = raw_keys(keys.path)
    assert sorted(made) == ["customer/c-7", "friend/f-1"]
    assert files_with(tmp_path, made["customer/c-7"])
    keys.forget("customer/c-7")
    assert files_with(tmp_path, made["customer/c-7"][:8]) == []
    assert files_with(tmp_path, made["friend/f-1"])


@dataclass(frozen=True)
class Joined:
    name: str


def test_an_event_whose_tag_names_a_person_is_not_written(log: Log, keys: es.KeyStore) -> None:
    joined = es.event("joined", Joined, personal=["name"], tags=lambda e: [f"name:{e.name}"])
    club = es.aggregate(
        "club",
        initial=Customer(),
        decide=lambda state, command: Joined(command.name),
        evolve=lambda state, event: state,
        events=[joined],
        commands=[es.command("register", Register, personal=["name", "email"])],
    )
    with (
        es.Domain("club", [club]).open(log, keys=keys) as store,
        pytest.raises(InvalidDomain, match="'name' in clear"),
    ):
        store.handle(club, "c-1", Register(NAME, None))
    assert log.head() == 0 or not list(store.commands(club, "c-1"))


def test_a_key_store_in_the_logs_folder_is_refused(log: Log, tmp_path: Path) -> None:
    with (
        es.KeyStore(tmp_path / "log" / "people.db") as inside,
        pytest.raises(InvalidSetting, match="is in the log's folder"),
    ):
        SHOP.open(log, keys=inside)
