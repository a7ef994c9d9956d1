"""The docs site has every page, and its links have targets. The generator itself is not needed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.links import broken
from tests.docs.site import DOCS, Nav, from_root, navigation, stage


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    stage(folder)
    return folder


def paths(nav: Nav) -> Iterator[str]:
    for entry in nav:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from paths(value)


def test_every_page_is_in_the_navigation_once(staged: Path) -> None:
    there = [str(page.relative_to(staged / "pages")) for page in staged.rglob("*.md")]
    assert sorted(paths(navigation())) == sorted(there)


def test_the_parts_come_in_the_order_of_learning() -> None:
    parts = [name for entry in navigation() for name in entry]
    assert parts == [
        *("Home", "Tutorial", "Tour of the studio", "How-to", "Concepts", "Reference"),
        *("Decisions", "Project"),
    ]


def test_the_settings_have_the_navigation(staged: Path) -> None:
    settings = tomllib.loads((staged / "zensical.toml").read_text())
    assert settings["project"]["nav"] == navigation()
    assert settings["project"]["theme"]["font"] is False, "the site loads nothing from elsewhere"


def test_links_hold_where_pages_are_on_the_site(staged: Path) -> None:
    pages = staged / "pages"
    wrong = {str(page): found for page in pages.rglob("*.md") if (found := broken(page, pages))}
    assert wrong == {}


def test_links_from_the_root_follow_the_pages() -> None:
    text = "[a](docs/tutorial.md#x) ![b](docs/pictures/b.svg) [c](docs/decisions) [d](README.md)"
    assert from_root(text) == (
        "[a](tutorial.md#x) ![b](pictures/b.svg) [c](decisions/README.md) [d](index.md)"
    )


def test_no_page_of_the_docs_needs_the_generator() -> None:
    # GitHub would show admonitions, content tabs and attribute lists as text.
    for page in DOCS.rglob("*.md"):
        lines = page.read_text().splitlines()
        foreign = [x for x in lines if x.startswith(("!!! ", "??? ", "=== ", ":::"))]
        assert foreign == [], page
