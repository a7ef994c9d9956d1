"""Every link of the docs has a target."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.links import anchor, anchors, broken, links

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_and_anchor_leads_somewhere(page: Path) -> None:
    assert broken(page, ROOT) == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        page = page / "README.md" if page.is_dir() else page
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        local = (link.partition("#")[0] for link in links(page) if "://" not in link)
        waiting += [(page.parent / link).resolve() for link in local if link]
    assert set(PAGES) <= reached


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[there](b.md)", []),
        ("[there](b.md#two-words)", []),
        ("![there](b.md)", []),
        ('<img alt="there" src="b.md">', []),
        ("[elsewhere](https://example.org/x)", []),
        ("# Up\n[up](#up)", []),
        ("`[code](none.md)`\n\n```python\na[0](none)\n```", []),
        ("[none](none.md)", ["none.md: no such file"]),
        ("[none](b.md#none)", ["b.md#none: no such heading"]),
        ("[none](#none)", ["#none: no such heading"]),
        ('<img src="none.svg">', ["none.svg: no such file"]),
        ("[outside](../../x.md)", ["../../x.md: no such file"]),
    ],
)
def test_a_link_that_leads_nowhere_is_found(text: str, wrong: list[str], tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# B\n\n## Two words\n")
    page = tmp_path / "a.md"
    page.write_text(text)
    assert broken(page, tmp_path) == wrong


def test_anchors_are_those_of_github(tmp_path: Path) -> None:
    assert anchor("What is `late`, and why?") == "what-is-late-and-why"
    assert anchor("[Run](run.md)") == "run"
    page = tmp_path / "a.md"
    page.write_text('# One\n\n## One\n\n```bash\n# no heading\n```\n<a id="here"></a>\n')
    assert anchors(page) == {"one", "one-1", "here"}
