"""The stored pictures are up to date, and the pages show them."""

from __future__ import annotations

import pytest

from tests.docs.gallery import FOLDER, PICTURES


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_is_drawn_now(name: str) -> None:
    drawn = PICTURES[name]().svg()
    assert (FOLDER / f"{name}.svg").read_text() == drawn, "run scripts/pictures"


@pytest.mark.parametrize("name", PICTURES)
def test_a_page_shows_it(name: str) -> None:
    pages = [page.read_text() for page in FOLDER.parent.glob("*/*.md")]
    readme = (FOLDER.parents[1] / "README.md").read_text()
    shown = any(f"(../pictures/{name}.svg)" in page for page in pages)
    assert shown or f"(docs/pictures/{name}.svg)" in readme
