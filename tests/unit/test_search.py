"""A view is searched by the words in it, and no text of a user is an instruction."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app as command
from headrace.errors import AmbiguousView, InvalidPipeline, InvalidQuery, UnknownView
from headrace.store.following import NOTHING, Follower
from headrace.store.search.query import MOST_TERMS, to_fts5
from tests.view_writer import ViewWriter

PRODUCTS = pa.schema(
    [
        ("id", pa.int64()),
        ("title", pa.string()),
        ("body", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("price", pa.decimal128(8, 2)),
        ("since", pa.timestamp("us", "UTC")),
    ]
)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def product(id: int, title: str, body: str = "", *tags: str) -> dict[str, Any]:
    price = Decimal(id) + Decimal("0.99")
    return {
        "id": id, "title": title, "body": body, "tags": list(tags), "price": price, "since": NOON,
    }  # fmt: skip


SHOP = [
    product(1, "Blue shoe", "A shoe for rainy days", "rain"),
    product(2, "Red shoe", "Runs well, and goes with a blue dress", "summer"),
    product(3, "Café table", "Made of oak; 4' 6\" wide (oak!)", "oak"),
    product(4, "Shoelaces", "For any shoe. Blue, blue, blue.", "rain", "blue"),
    product(5, "C++ -- a book; DROP TABLE rows_1", 'ratio 16:9 "quoted" 100%', "book"),
]


class Shop:
    """A view of products and its search index."""

    def __init__(self, writer: ViewWriter, store: hr.Search) -> None:
        self.writer = writer
        self.store = store
        self.log = writer.log.url
        self.follow()

    def follow(self) -> None:
        writer = self.writer
        with Follower(writer.log, writer.app, writer.view, self.store) as follower:
            while follower.advance() is not NOTHING:
                pass

    def find(self, text: str, **more: Any) -> list[int]:
        with hr.open_search("products", self.log) as index:
            return [hit.row["id"] for hit in index.search(text, **more).hits]


@contextlib.contextmanager
def shop_in(folder: Path, store: hr.Search, app: str = "shop") -> Iterator[Shop]:
    with hr.open_log(f"file:{folder}") as log, ViewWriter(log, app, "products", PRODUCTS) as writer:
        writer.write(*SHOP)
        yield Shop(writer, store)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with shop_in(tmp_path, hr.Search()) as shop:
        yield shop


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hr.SearchIndex]:
    """An index that no test changes."""
    with (
        shop_in(tmp_path_factory.mktemp("shop"), hr.Search()) as shop,
        hr.open_search("products", shop.log) as index,
    ):
        yield index


def found(index: hr.SearchIndex, text: str, **more: Any) -> list[int]:
    return [hit.row["id"] for hit in index.search(text, **more).hits]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("shoe", {1, 2, 4}),
        ("blue shoe", {1, 2, 4}),
        ('"blue shoe"', {1}),
        ("sho*", {1, 2, 4}),
        ('"rainy da"*', {1}),
        ("title:blue", {1}),
        ("TITLE:blue", {1}),
        ('body:"blue dress"', {2}),
        ("red OR oak", {2, 3}),
        ("red OR oak shoe", {2}),
        ("shoe -red", {1, 4}),
        ("shoe -title:blue -title:red", {4}),
        ("cafe", {3}),
        ("CAFÉ", {3}),
        ("tags:rain", {1, 4}),
        ("nothing", set()),
        ("C++", {5}),
        ("16:9", {5}),
        ("shoe & !", {1, 2, 4}),
        ("AND", {2}),
        ("it's", set()),
        ("a' OR 1=1 --", {1, 2, 5}),
    ],
)
def test_words_find_the_rows_that_have_them(
    index: hr.SearchIndex, text: str, ids: set[int]
) -> None:
    assert set(found(index, text)) == ids


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "There is no word"),
        ("  \t", "There is no word"),
        ("*", "There is no word"),
        ('"open', "mark is not closed"),
        ("-shoe", "All words are excluded"),
        ("OR shoe", "OR needs a word on either side"),
        ("shoe OR", "OR needs a word on either side"),
        ("shoe OR OR blue", "OR needs a word on either side"),
        ("shoe OR -blue", "OR cannot join"),
        ("colour:blue", "no column 'colour' to search"),
        ("price:1", "no column 'price' to search"),
        (" ".join(["a"] * (MOST_TERMS + 1)), "has 101 words"),
    ],
)
def test_a_mistake_in_a_query_is_named_in_words(
    index: hr.SearchIndex, text: str, message: str
) -> None:
    with pytest.raises(InvalidQuery, match=message):
        index.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "x'; DROP TABLE rows_1; --", 'x" OR "y', "NEAR(a b)", "a ^ b", "{c1} : x", "(((", ")",
        "a:b:c", "rank MATCH 'bm25'",
        "col : x", "\\", "\0", "'", "a*b*c*", "- -", "NOT", "a NOT b", "--",
    ],
)  # fmt: skip
def test_no_text_is_an_instruction(index: hr.SearchIndex, text: str) -> None:
    with contextlib.suppress(InvalidQuery):
        index.search(text)
    assert set(found(index, "shoe")) == {1, 2, 4}


def test_better_matches_come_first_and_weights_change_that(index: hr.SearchIndex) -> None:
    assert found(index, "blue")[0] in (1, 4)
    assert found(index, "blue", weights={"title": 50.0})[0] == 1
    assert found(index, "blue", weights={"title": 0.0, "body": 50.0})[0] == 4
    with pytest.raises(InvalidQuery, match="no column 'colour' to give a weight"):
        index.search("blue", weights={"colour": 1.0})


def test_a_hit_has_its_row_with_types_and_a_snippet(index: hr.SearchIndex) -> None:
    result = index.search("rainy", marks=("<", ">"))
    (hit,) = result.hits
    assert hit.snippet == "A shoe for <rainy> days"
    assert hit.score > 0
    assert hit.row == {**SHOP[0], "revision": 1}
    assert not result.more


def test_a_limit_says_that_there_are_more(index: hr.SearchIndex) -> None:
    assert [len(index.search("shoe", limit=n).hits) for n in (1, 2, 3)] == [1, 2, 3]
    assert [index.search("shoe", limit=n).more for n in (1, 2, 3)] == [True, True, False]
    with pytest.raises(InvalidQuery, match="limit cannot be 0"):
        index.search("shoe", limit=0)


def test_changes_of_the_view_are_found_and_what_they_replaced_is_not(shop: Shop) -> None:
    shop.writer.write(product(1, "Green boot"), deleted=[{"id": 2}], revision=2)
    shop.writer.write(product(9, "New shoe"), revision=2)
    shop.follow()
    assert set(shop.find("shoe")) == {4, 9}
    assert shop.find("boot") == [1]
    assert shop.find("dress") == []


def test_an_open_index_finds_what_a_new_version_has(shop: Shop) -> None:
    with hr.open_search("products", shop.log) as index:
        assert [hit.row["id"] for hit in index.search("oak").hits] == [3]
        shop.writer.begin_anew()
        shop.writer.write(product(7, "Oak chair"))
        shop.follow()
        assert [hit.row["id"] for hit in index.search("oak").hits] == [7]
        assert index.search("shoe").hits == ()


def test_the_columns_and_the_tokenizer_are_chosen(tmp_path: Path) -> None:
    with shop_in(tmp_path, hr.Search(columns=["title"], tokenizer="english")) as shop:
        assert set(shop.find("shoes")) == {1, 2}
        assert shop.find("dress") == []
        with pytest.raises(InvalidQuery, match="no column 'body'"):
            shop.find("body:dress")
        shop.store = hr.Search(columns=["title"], tokenizer="substrings")
        shop.follow()
        assert shop.find("ela") == [4]


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (lambda: hr.Search(tokenizer="klingon"), "no tokenizer 'klingon'"),
        (lambda: hr.Search(prefixes=[0]), "prefixes cannot be"),
    ],
)
def test_settings_that_there_are_not_are_refused(search: Any, message: str) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        search()


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["colour"], "no column 'colour' to search"), (["price"], "only texts can be searched")],
)
def test_columns_that_cannot_be_searched_are_refused(
    tmp_path: Path, columns: list[str], message: str
) -> None:
    with (
        pytest.raises(InvalidPipeline, match=message),
        shop_in(tmp_path, hr.Search(columns=columns)),
    ):
        pass


def test_a_view_that_has_no_index_is_unknown(shop: Shop) -> None:
    with pytest.raises(UnknownView, match="no search index of a view 'orders'"):
        hr.open_search("orders", shop.log)


def test_of_two_indexes_the_application_chooses(tmp_path: Path) -> None:
    with shop_in(tmp_path, hr.Search()) as shop, shop_in(tmp_path, hr.Search(), "other"):
        with pytest.raises(AmbiguousView, match="Several applications"):
            hr.open_search("products", shop.log)
        for index in (
            hr.open_search("products", shop.log, app="other"),
            hr.open_search("shop.products", shop.log),
        ):
            with index:
                assert len(index.search("shoe").hits) == 3


def test_the_command_prints_rows_or_json(shop: Shop) -> None:
    run = CliRunner().invoke
    done = run(command, ["search", "products", '"blue shoe"', "--log", shop.log, "--json"])
    (line,) = map(json.loads, done.stdout.splitlines())
    assert line["row"]["id"] == 1
    assert line["row"]["price"] == "1.99"
    assert "[Blue] [shoe]" in line["snippet"] or "[Blue shoe]" in line["snippet"]
    shown = run(command, ["search", "products", "shoe", "--limit", "1", "--log", shop.log])
    assert "There are more" in shown.output
    wrong = run(command, ["search", "products", "--log", shop.log, "--", "-shoe"])
    assert wrong.exit_code == 2
    assert "All words are excluded" in wrong.output


def test_a_word_is_always_in_quotes() -> None:
    assert to_fts5("a'b NEAR( ^c", {"t": "c0"}) == '("a\'b") AND ("NEAR(") AND ("^c")'
    assert to_fts5("t:x y -z", {"t": "c0"}) == '(({c0} : "x") AND ("y")) NOT ("z")'
