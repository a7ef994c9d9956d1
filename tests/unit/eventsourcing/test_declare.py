"""Declarations of events, commands and aggregates, and the JSON of their dataclasses."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

import headrace.eventsourcing as es
from headrace.errors import InvalidDomain, UnreadableEvent, WrongType
from headrace.eventsourcing.codec import codec_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    name: str
    next: Inner | None = None


@dataclass(frozen=True)
class Everything:
    text: str
    number: int
    real: float
    flag: bool
    amount: Decimal
    day: date
    moment: datetime
    colour: Colour
    maybe: str | None
    words: list[str]
    pair: tuple[int, str]
    many: tuple[Decimal, ...]
    named: dict[str, Inner]


WHOLE = Everything(
    "é", 1 << 60, 0.1, True, Decimal("1.50"), date(2026, 1, 31),
    datetime(2026, 1, 31, 12, tzinfo=UTC), Colour.BLUE, None, ["a"], (1, "b"),
    (Decimal(1), Decimal("0.10")), {"k": Inner("x", Inner("y"))},
)  # fmt: skip


@dataclass(frozen=True)
class Opened:
    owner: str


@dataclass(frozen=True)
class Closed:
    pass


@dataclass(frozen=True)
class Unstorable:
    value: complex


@dataclass
class Changeable:
    value: int


def an_aggregate(name: str = "account", **changes: Any) -> es.Aggregate[Any]:
    return es.aggregate(
        name,
        **{
            "initial": Opened(""),
            "decide": lambda state, command: (),
            "evolve": lambda state, event: event,
            "events": [es.event("account-opened", Opened)],
            **changes,
        },
    )


def test_what_was_written_is_read() -> None:
    codec = codec_of(Everything)
    assert codec.decode(codec.encode(WHOLE)) == WHOLE


@pytest.mark.parametrize(
    ("value", "field"),
    [(Opened(7), "owner"), (Inner("a", Opened("b")), "next")],  # type: ignore[arg-type]
)
def test_a_value_of_another_type_than_declared_is_refused(value: Any, field: str) -> None:
    with pytest.raises(WrongType, match=field):
        codec_of(type(value)).encode(value)


@pytest.mark.parametrize(
    "text", ["{}", '{"owner": 1}', '{"owner": "a", "more": 1}', "[]", "{", "null"]
)
def test_data_that_does_not_fit_is_never_guessed(text: str) -> None:
    with pytest.raises(UnreadableEvent):
        codec_of(Opened).decode(text)


@pytest.mark.parametrize("kind", [Unstorable, Changeable, dict, 7])
def test_a_class_without_a_form_in_json_is_refused_when_declared(kind: Any) -> None:
    with pytest.raises(InvalidDomain):
        es.event("account-opened", kind)


def test_an_older_version_is_read_through_its_upcasters() -> None:
    opened = es.event("account-opened", Opened, version=2, upcast=[es.rename("name", "owner")])
    assert opened.decode('{"name": "mia"}', 1) == Opened("mia")
    assert opened.decode('{"owner": "mia"}', 2) == Opened("mia")


def test_a_newer_version_than_declared_is_refused() -> None:
    with pytest.raises(UnreadableEvent, match="version 2"):
        es.event("account-opened", Opened).decode('{"owner": "mia"}', 2)


def test_every_older_version_needs_its_upcasters() -> None:
    with pytest.raises(InvalidDomain, match="version 3"):
        es.event("account-opened", Opened, version=3, upcast=[es.rename("name", "owner")])
    es.event("account-opened", Opened, version=3, upcast={1: [es.rename("name", "owner")], 2: []})


@pytest.mark.parametrize("name", ["", "Account", "a b", "a/b", 7])
def test_a_name_is_one_that_can_be_stored(name: Any) -> None:
    with pytest.raises(InvalidDomain):
        es.event(name, Opened)


def test_a_user_cannot_give_the_tags_of_headrace() -> None:
    opened = es.event("account-opened", Opened, tags=lambda event: [event.owner])
    assert opened.tags_of(Opened("a")) == ("a",)
    with pytest.raises(InvalidDomain, match="type:x"):
        opened.tags_of(Opened("type:x"))


def test_a_class_has_one_name_in_a_domain() -> None:
    twice = [es.event("account-opened", Opened), es.event("opened", Opened)]
    with pytest.raises(InvalidDomain, match="Opened"):
        es.Domain("bank", [an_aggregate(events=twice)])


def test_aggregates_may_share_a_type_of_events() -> None:
    closed = es.event("closed", Closed)
    domain = es.Domain(
        "bank", [an_aggregate("a", events=[closed]), an_aggregate("b", events=[closed])]
    )
    assert domain.type_of_event(Closed()) is closed


def test_an_undeclared_event_is_refused_by_its_domain() -> None:
    domain = es.Domain("bank", [an_aggregate()])
    with pytest.raises(InvalidDomain, match="Closed"):
        domain.type_of_event(Closed())
    with pytest.raises(UnreadableEvent, match="closed"):
        domain.event_type("closed")


def test_a_refusal_has_a_reason() -> None:
    assert es.refuse("too low").reason == "too low"
    with pytest.raises(InvalidDomain):
        es.refuse("")


@pytest.mark.parametrize("text", ['{"owner": "a", "more": 1}', '{"owner": "a"}', '{"owner": 1.0}'])
def test_an_event_may_have_more_fields_and_lack_those_that_may_be_none(text: str) -> None:
    kind = es.event("noted", Noted)
    if "1.0" in text:
        with pytest.raises(UnreadableEvent):
            kind.decode(text, 1)
    else:
        assert kind.decode(text, 1) == Noted("a", None)


@pytest.mark.parametrize(
    "text",
    [r'{"owner": "\ud800"}', r'{"owner": "\udc00\ud800"}', '{"owner": NaN}', '{"owner": "a"} x'],
)
def test_text_that_spark_would_read_differently_is_refused(text: str) -> None:
    with pytest.raises(UnreadableEvent):
        es.event("noted", Noted).decode(text, 1)


def test_a_whole_character_and_an_escaped_backslash_are_text() -> None:
    kind = es.event("noted", Noted)
    assert kind.decode(r'{"owner": "\ud83d\ude00\\ud800"}', 1).owner == "\U0001f600\\ud800"


@dataclass(frozen=True)
class Noted:
    owner: str
    note: str | None
