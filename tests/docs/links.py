"""Links of a Markdown page, and the anchors that links can target."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_FENCED = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_INLINE = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_TAG = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=[\"']([^\"']+)[\"']")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_NAMED = re.compile(r"<\w+\b[^>]*?\b(?:id|name)=[\"']([^\"']+)[\"']")


def prose(text: str) -> str:
    """A page without its code blocks."""
    return _FENCED.sub("", text)


def links(page: Path) -> Iterator[str]:
    """Targets of all links and pictures of a page."""
    text = _SPAN.sub("code", prose(page.read_text()))
    yield from _INLINE.findall(text)
    yield from _TAG.findall(text)


def anchors(page: Path) -> set[str]:
    """Anchors of a page as GitHub makes them from headings. A repeated one gets a number."""
    text = prose(page.read_text())
    found = set(_NAMED.findall(text))
    for heading in _HEADING.findall(text):
        slug = anchor(heading)
        count = 1
        while slug in found:
            slug = f"{anchor(heading)}-{count}"
            count += 1
        found.add(slug)
    return found


def anchor(heading: str) -> str:
    """The anchor of a heading, the same on GitHub and on the site."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")


def broken(page: Path, root: Path) -> list[str]:
    """Relative links of a page without a target, each with the reason."""
    wrong = []
    for target in links(page):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        path, _, fragment = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or not found.is_relative_to(root):
            wrong.append(f"{target}: no such file")
        elif fragment:
            shown = found / "README.md" if found.is_dir() else found
            if fragment not in anchors(shown):
                wrong.append(f"{target}: no such heading")
    return wrong
