"""Commands that a person types."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from headrace.errors import WrongType
from headrace.eventsourcing.codec import codec_of
from headrace.eventsourcing.given import described, given, typed


@dataclass(frozen=True)
class Order:
    item: str
    pieces: int
    price: Decimal | None = None
    gift: bool = False


CODEC = codec_of(Order)


def test_a_word_is_text_where_the_field_is_text_and_json_elsewhere() -> None:
    words = {"item": "7", "pieces": "7", "price": "1.50", "gift": "true"}
    assert given(CODEC, typed(CODEC, words)) == Order("7", 7, Decimal("1.50"), True)


def test_a_field_with_a_default_may_be_missing() -> None:
    assert given(CODEC, {"item": "pen", "pieces": 1}) == Order("pen", 1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"item": "pen"}, "'pieces' is missing"),
        ({"itm": "pen", "pieces": 1}, "no field 'itm'"),
        ({"item": "pen", "pieces": "1"}, "pieces: '1' is not an int"),
        ({"item": 1, "pieces": 1}, "item: 1 is not of type str"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_fields_that_there_are(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(WrongType, match=said) as refused:
        given(CODEC, fields)
    assert described(Order) in refused.value.hint


def test_a_word_that_fits_nothing_stays_as_it_was_typed() -> None:
    with pytest.raises(WrongType, match="pieces: 'many'"):
        given(CODEC, typed(CODEC, {"item": "pen", "pieces": "many"}))


def test_fields_are_described_with_their_types() -> None:
    expected = "item str, pieces int, price decimal.Decimal | None, gift bool"
    assert described(Order) == expected
