"""Declarations of personal fields, and stored data with them sealed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headrace.eventsourcing as es
from headrace.errors import InvalidDomain, SubjectForgotten, UnreadableEvent, WrongType
from headrace.eventsourcing.hidden import check_tags, stored_tags
from headrace.eventsourcing.personal import (
    MARK,
    Personal,
    open_data,
    open_metadata,
    open_reason,
    personal_fields,
    personal_metadata_of,
    seal_data,
    seal_metadata,
    seal_reason,
)

PLACE = ("event", "account/a-1", "1", "opened")


@dataclass(frozen=True)
class Opened:
    customer: str
    name: str
    email: str | None
    limit: int = 0


@dataclass(frozen=True)
class State:
    owner: str = ""


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[es.KeyStore]:
    with es.KeyStore(tmp_path / "people.db") as keys:
        yield keys


def fields(given: Any) -> Personal:
    return personal_fields("'opened'", Opened, given)


MINE = fields({"name": "customer/{customer}", "email": "customer/{customer}"})
DATA = {"customer": "c-7", "name": "Jane", "email": "j@x.y", "limit": 3}


def test_personal_fields_are_sealed_and_the_others_are_not(keys: es.KeyStore) -> None:
    stored = seal_data(MINE, DATA, "account/a-1", PLACE, keys)
    assert (stored["customer"], stored["limit"]) == ("c-7", 3)
    assert "Jane" not in json.dumps(stored) and "j@x.y" not in json.dumps(stored)
    assert open_data(stored, PLACE, keys) == DATA
    assert keys.subjects() == ["customer/c-7"]


def test_a_forgotten_subjects_fields_read_as_their_types_say(keys: es.KeyStore) -> None:
    stored = seal_data(MINE, DATA, "account/a-1", PLACE, keys)
    keys.forget("customer/c-7")
    assert open_data(stored, PLACE, keys) == {**DATA, "name": es.FORGOTTEN, "email": None}
    assert open_data(stored, PLACE, None) == {**DATA, "name": es.SEALED, "email": None}


def test_nothing_is_sealed_where_there_is_nothing(keys: es.KeyStore) -> None:
    """A copy of a state whose owner is forgotten can still be stored."""
    data = {**DATA, "name": es.FORGOTTEN, "email": None}
    assert seal_data(MINE, data, "account/a-1", PLACE, None) == data


def test_a_forgotten_subjects_data_is_not_written_again(keys: es.KeyStore) -> None:
    seal_data(MINE, DATA, "account/a-1", PLACE, keys)
    keys.forget("customer/c-7")
    with pytest.raises(SubjectForgotten, match="customer/c-7"):
        seal_data(MINE, DATA, "account/a-1", PLACE, keys)


def test_without_a_key_store_nothing_personal_is_written() -> None:
    with pytest.raises(InvalidDomain, match="no key store"):
        seal_data(MINE, DATA, "account/a-1", PLACE, None)


def test_the_subject_of_a_list_of_fields_is_the_aggregate(keys: es.KeyStore) -> None:
    seal_data(fields(["name"]), DATA, "customer/c-9", PLACE, keys)
    assert keys.subjects() == ["customer/c-9"]


def test_fields_of_two_subjects_are_forgotten_one_by_one(keys: es.KeyStore) -> None:
    two = fields({"name": "customer/{customer}", "email": "{aggregate}"})
    stored = seal_data(two, DATA, "account/a-1", PLACE, keys)
    keys.forget("account/a-1")
    assert open_data(stored, PLACE, keys) == {**DATA, "email": None}


def test_a_sealed_field_cannot_be_moved_to_another_field_or_event(keys: es.KeyStore) -> None:
    stored = seal_data(MINE, DATA, "account/a-1", PLACE, keys)
    moved = {**stored, "email": stored["name"]}
    with pytest.raises(UnreadableEvent, match="moved from another place"):
        open_data(moved, PLACE, keys)
    with pytest.raises(UnreadableEvent, match="moved from another place"):
        open_data(stored, ("event", "account/a-2", "1", "opened"), keys)


def test_a_subject_has_to_be_known_when_a_field_is_written(keys: es.KeyStore) -> None:
    with pytest.raises(WrongType, match="'customer' is ''"):
        seal_data(MINE, {**DATA, "customer": ""}, "account/a-1", PLACE, keys)


def test_text_of_the_user_is_never_taken_for_a_sealed_value(keys: es.KeyStore) -> None:
    other = keys.seal("customer/c-7", "Jane", PLACE)
    data = {**DATA, "name": other, "customer": "sealed:x"}
    stored = seal_data(MINE, data, "account/a-1", PLACE, keys)
    assert open_data(stored, PLACE, keys) == data
    assert open_data({"name": other}, PLACE, keys) == {"name": other}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("name", "are text"),
        (["nme"], "has no field 'nme'"),
        (["limit"], "not text"),
        ({"name": "customer"}, "names no field"),
        ({"name": "{customer"}, "names no field"),
        ({"name": "{customer!r}"}, "names no field"),
        ({"name": "c/{client}"}, "does not have"),
        ({"name": "{email}", "email": "{customer}"}, "personal too"),
        ({"name": "{name}"}, "personal too"),
    ],
)
def test_a_declaration_that_could_not_work_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidDomain, match=message):
        fields(given)


@dataclass(frozen=True)
class Open:
    name: str


def bank(event: Any, command: Any, **settings: Any) -> es.Aggregate[State]:
    return es.aggregate(
        "account",
        initial=State(),
        decide=lambda state, command: (),
        evolve=lambda state, event: state,
        events=[es.event("opened", Opened, personal=event)],
        commands=[es.command("open", Open, personal=command)],
        **settings,
    )


def test_a_field_that_is_personal_in_an_event_is_declared_in_its_command() -> None:
    with pytest.raises(InvalidDomain, match="'open' has a field 'name' that is not declared"):
        bank(["name"], None)
    bank(["name"], ["name"])
    bank(["name"], {"name": None})


def test_snapshots_of_an_aggregate_with_personal_fields_say_what_they_seal() -> None:
    with pytest.raises(InvalidDomain, match="state of 'account', in snapshots and"):
        bank(["name"], ["name"], snapshot_every=10)
    bank(["name"], ["name"], snapshot_every=10, personal=[])
    bank(["name"], ["name"], snapshot_every=10, personal=["owner"])
    bank(["name"], ["name"])


def test_a_state_without_a_declaration_is_personal_of_the_aggregate_itself() -> None:
    plain, named = bank(["name"], ["name"]), bank(["name"], ["name"], personal=["owner"])
    assert plain.subjects(State("Jane"), "account/a-1") == {"account/a-1"}
    assert named.subjects(State("Jane"), "account/a-1") == {"account/a-1"}
    assert named.subjects(State(), "account/a-1") == set()
    assert bank(["name"], ["name"], personal=[]).subjects(State("Jane"), "k") == set()
    assert bank(None, None).subjects(State("Jane"), "account/a-1") == set()
    with pytest.raises(InvalidDomain, match="in reasons of refusals"):
        bank({"name": "customer/{customer}"}, ["name"])


def test_a_decision_over_personal_events_says_what_is_personal_in_its_state() -> None:
    def domain(**settings: Any) -> es.Domain:
        rule = es.decision(
            "rule", initial=State(), decide=lambda state, command: (), commands=[],
            evolve=lambda state, event: state, matches=lambda command: [], **settings,
        )  # fmt: skip
        return es.Domain("bank", [bank(["name"], ["name"])], decisions=[rule])

    with pytest.raises(InvalidDomain, match="state of 'rule', in snapshots"):
        domain()
    domain(personal=[])
    domain(personal={"owner": None})


@pytest.mark.parametrize("forgotten", ["customer/c-7", "friend/f-1"])
def test_the_reason_of_a_refusal_is_gone_with_any_of_its_subjects(
    keys: es.KeyStore, forgotten: str
) -> None:
    place = ("command", "account/a-1", "c-1", "open")
    stored = seal_data(MINE, DATA, "account/a-1", place, keys)
    subjects = MINE.subjects(DATA, "account/a-1") | {"friend/f-1"}
    reason, stored = seal_reason("Jane knows Paul", subjects, stored, place, keys)
    assert "Jane" not in reason
    assert open_reason(reason, stored, place, keys) == "Jane knows Paul"
    assert open_data(stored, place, keys) == DATA
    assert open_reason(reason, stored, place, None) == es.SEALED
    keys.forget(forgotten)
    assert open_reason(reason, stored, place, keys) == es.FORGOTTEN
    assert seal_reason("Jane knows Paul", subjects, {}, place, keys) == (es.FORGOTTEN, {})


def test_a_reason_stays_in_clear_where_nothing_is_personal(keys: es.KeyStore) -> None:
    empty = MINE.subjects({**DATA, "name": "", "email": None}, "account/a-1")
    assert seal_reason("too much", empty, {"a": 1}, PLACE, keys) == ("too much", {"a": 1})
    assert open_reason("too much", {"a": 1}, PLACE, keys) == "too much"


def test_personal_metadata_is_sealed(keys: es.KeyStore) -> None:
    mine = personal_metadata_of("bank", {"why": "customer/{customer}"})
    given = {"who": "teller-3", "why": "Jane called", "customer": "c-7"}
    stored = seal_metadata(mine, given, "account/a-1", PLACE, keys)
    assert "Jane" not in json.dumps(stored) and stored["who"] == "teller-3"
    assert all(isinstance(value, str) for value in stored.values()) and MARK in stored
    assert open_metadata(stored, PLACE, keys) == given
    keys.forget("customer/c-7")
    assert open_metadata(stored, PLACE, keys) == {**given, "why": es.FORGOTTEN}
    assert open_metadata({"who": "x"}, PLACE, keys) == {"who": "x"}


def test_a_tag_with_a_personal_field_in_clear_is_refused(keys: es.KeyStore) -> None:
    with pytest.raises(InvalidDomain, match="'email' in clear"):
        check_tags(MINE, DATA, ["email:j@x.y"])
    tags = [es.hidden("email:j@x.y"), "customer:c-7"]
    check_tags(MINE, DATA, tags)
    stored = stored_tags(tags, keys)
    assert stored == (keys.hide("email:j@x.y"), "customer:c-7") and "j@x.y" not in stored[0]
    with pytest.raises(InvalidDomain, match="needs a key store"):
        stored_tags(tags, None)
