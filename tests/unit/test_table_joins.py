"""Joined tables: refusals and their positions, and the unique key of their rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidPipeline
from headrace.language.differences import differences
from headrace.plan.steps import definition_of, fingerprint, steps_of
from tests.refusals import text_of

SCHEMA = "id string, product string, region string, n int, at timestamp"


def table(name: str, app: hr.App | None = None, key: Any = "id", **more: Any) -> hr.Table:
    topic = (app or hr.App("shop")).topic(name, schema=SCHEMA, key="id", event_time="at")
    return hr.table(hr.select(topic, "id", "product", "region", "n", **more), key=key)


def joined(how: Any = "inner", on: Any = None, prefix: Any = "p_") -> hr.TableJoin:
    on = {"product": "id"} if on is None else on
    return hr.join_tables(table("orders"), table("products"), on=on, how=how, prefix=prefix)


def three(on: Any, how: Any = "inner", prefix: Any = ("p_", "s_")) -> hr.TableJoin:
    tables = (table("orders"), table("products"), table("shops"))
    return hr.join_tables(*tables, on=on, how=how, prefix=prefix)


def stream() -> Any:
    return table("orders").input


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a stream": (lambda: hr.join_tables(stream(), table("p"), on="id"), "needs a table for"),
    "alone": (lambda: hr.join_tables(table("orders"), on="id"), "needs two tables"),
    "how": (lambda: joined("outer"), "how cannot be 'outer'"),
    "column": (lambda: joined(on={"prod": "id"}), "no column 'prod'"),
    "their column": (lambda: joined(on={"product": "ids"}), "no column 'ids'"),
    "no column": (lambda: joined(on={}), "needs columns to join on"),
    "names": (lambda: joined(prefix=""), "Both sides of the join have a column"),
    "own names": (lambda: joined(prefix="_"), "cannot be called '_product'"),
    "revision": (
        lambda: hr.join_tables(table("o", revision="n"), table("p"), on="id", prefix="p_"),
        "'revision' is reserved",
    ),
    "one for three": (lambda: three({"product": "id"}), "`on` needs as many entries"),
    "one prefix": (
        lambda: three([{"product": "id"}] * 2, prefix="x"),
        "`prefix` needs as many entries",
    ),
    "right of three": (lambda: three([{"product": "id"}] * 2, "right"), "how='right'"),
    "not by key": (
        lambda: three([{"product": "id"}, {"p_region": "region"}]),
        "each is found by its key, id",
    ),
    "of several": (
        lambda: hr.join_tables(
            table("orders"),
            table("products"),
            table("shops", key=["id", "region"]),
            on=[{"product": "id"}, {"p_product": "id", "region": "region"}],
            prefix=["p_", "s_"],
        ),
        "come from several tables",
    ),
    "published": (lambda: hr.App("x").publish("out", joined()), "'out' is append-only"),
    "filtered": (
        lambda: hr.App("x").publish("out", hr.filter(joined(), "n > 1")),
        "'out' is append-only",
    ),
    "key": (lambda: hr.App("x").view("v", joined(), key=["n"]), "is not unique"),
    "more key": (lambda: hr.App("x").view("v", joined(), key=["id", "n"]), "has more columns than"),
    "of results": (lambda: hr.table(joined(), key="id"), "A table is made of a topic"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_joined_is_refused_at_the_users_own_line(what: str) -> None:
    declare, says = REFUSED[what]
    with pytest.raises(InvalidPipeline, match=r"test_table_joins\.py") as caught:
        declare()
    assert re.search(says, text_of(caught.value))


KEYS: list[tuple[Any, Any, tuple[str, ...]]] = [
    ("inner", {"product": "id"}, ("id",)),
    ("left", {"product": "id"}, ("id",)),
    ("right", {"product": "id"}, ("id", "product")),
    ("full", "id", ("id",)),
    ("inner", "region", ("id", "p_id")),
    ("left", {"region": "product"}, ("id", "p_id")),
]


@pytest.mark.parametrize(("how", "on", "key"), KEYS)
def test_rows_are_unique_by_the_first_key_or_by_both(
    how: Any, on: Any, key: tuple[str, ...]
) -> None:
    step = joined(how, on)
    assert step.key == key
    assert hr.App("x").view("v", step).key == key


def test_a_chain_has_the_key_of_its_first_table() -> None:
    step = three([{"product": "id"}, {"p_region": "id"}])
    assert step.key == ("id",)
    assert step.looked_up_from(step.links[1]) == 1
    assert step.columns[-3:] == ("s_product", "s_region", "s_n")


def step_of(how: Any, on: Any = None) -> Any:
    app = hr.App("x")
    app.view("v", joined(how, on))
    (step,) = steps_of(app)
    return step


def test_what_is_joined_another_way_is_another_step_and_says_so() -> None:
    one, other, third = step_of("inner"), step_of("left"), step_of("inner", {"region": "id"})
    assert fingerprint(one) == fingerprint(step_of("inner"))
    assert len({fingerprint(step) for step in (one, other, third)}) == 3
    assert differences(definition_of(one), definition_of(other)) == [
        "the kind of join was inner and is left"
    ]
    assert "join condition" in differences(definition_of(one), definition_of(third))[0]


def test_joined_tables_say_what_they_do() -> None:
    app = hr.App("shop")
    step = hr.join_tables(
        table("orders", app), table("products", app), on={"product": "id"}, how="left", prefix="p_"
    )
    app.view("priced", step)
    explained = app.explain()["priced"]
    assert explained["joins"] == "the row of products where its id is the product of orders"
    assert explained["shows"] == "every row of orders, with nulls if it has no match"
    assert "newest version of each id of orders" in explained["holds"]
    assert explained["keeps"] == "view priced, a row for each id"
    assert "shop.priced.changes" in explained["changelog"]
