"""The docs site: its pages, their navigation, and the generator's settings.

`make docs` builds it. Pages are written to be read on GitHub; here they are copied to one folder,
with README.md as the home page, and their links are adapted.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / "docs"

Nav = list[dict[str, "str | Nav"]]

_HOME = {"README.md": "index.md"}
"""Pages of the root folder that have another name on the site."""

_FROM_ROOT = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")

_FIRST = {
    "concepts": (
        "batch-and-stream",
        "log-and-queue",
        "queues",
        "event-time",
        "watermarks",
        "windows",
        "panes",
        "late-events",
    ),
    "how-to": (
        "test-a-pipeline",
        "write-a-pipeline-in-sql",
        "find-out-what-is-wrong",
        "watch-in-the-studio",
    ),
    "reference": ("python", "cli"),
    "reference/python": ("log", "pipeline", "time", "joins", "aggregates", "run", "results"),
}
"""Pages that come first in their folder. The others follow by title."""


def stage(folder: Path) -> None:
    """Write the pages and the generator's settings into a folder."""
    pages = folder / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, pages)
    for name in _FROM_ROOT:
        text = (ROOT / name).read_text()
        (pages / _HOME.get(name, name)).write_text(from_root(text))
    settings = (ROOT / "zensical.toml").read_text()
    assert "\nnav = []\n" in settings
    (folder / "zensical.toml").write_text(
        settings.replace("\nnav = []\n", f"\nnav = {_toml(navigation())}\n")
    )


def from_root(text: str) -> str:
    """A page of the root folder, with its links adapted to the site."""
    text = re.sub(r"(\]\(|src=\"|srcset=\")docs/", r"\1", text)
    text = text.replace("](decisions)", "](decisions/README.md)")
    return text.replace("](README.md", "](index.md")


def navigation() -> Nav:
    """Every page of the site, by folder."""
    return [
        {"Home": "index.md"},
        {
            "Tutorial": [
                {title(DOCS / name): name} for name in ("tutorial.md", "tutorial-event-sourcing.md")
            ]
        },
        {"Tour of the studio": "tour.md"},
        {"How-to": _section("how-to")},
        {"Concepts": _section("concepts")},
        {"Reference": _section("reference")},
        {"Decisions": _section("decisions")},
        {
            "Project": [
                {"Architecture": "ARCHITECTURE.md"},
                {"Contributing": "CONTRIBUTING.md"},
                {"Changelog": "CHANGELOG.md"},
            ]
        },
    ]


def _section(name: str) -> Nav:
    folder = DOCS / name
    entries: Nav = []
    index = folder / "README.md"
    if index.exists():
        entries.append({title(index): f"{name}/README.md"})
    for path in sorted(_children(folder), key=lambda path: _place(name, path)):
        if path.is_dir():
            below = f"{name}/{path.name}"
            entries.append({title(path / "README.md"): _section(below)})
        else:
            entries.append({title(path): f"{name}/{path.name}"})
    return entries


def _children(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() or (path.suffix == ".md" and path.name != "README.md"):
            yield path


def _place(section: str, path: Path) -> tuple[int, str]:
    first = _FIRST.get(section, ())
    return first.index(path.stem) if path.stem in first else len(first), path.stem


def title(page: Path) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", page.read_text(), re.MULTILINE)
    assert found, f"{page} has no heading"
    return found[1].replace("`", "")


def _toml(nav: Nav) -> str:
    """A list of inline tables. TOML's basic strings have the syntax of JSON's."""
    entries = []
    for entry in nav:
        for name, value in entry.items():
            written = json.dumps(value) if isinstance(value, str) else _toml(value)
            entries.append(f"{{ {json.dumps(name)} = {written} }}")
    return f"[{', '.join(entries)}]"


def main(generator: str) -> None:
    stage(BUILD)
    command = [generator, "build", "--clean", "--strict", "--config-file", "zensical.toml"]
    subprocess.run(command, cwd=BUILD, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
