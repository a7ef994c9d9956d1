"""The docs as pages of the studio, so that a simulation leads to the concept behind it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import htpy as h
from fastapi import APIRouter, Request
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response

import headrace
from headrace.studio.pages import page

router = APIRouter()


def _folder() -> Path:
    """The docs: in the installed package, else beside src/."""
    package = Path(headrace.__file__).resolve().parent
    installed = package / "docs"
    return installed if installed.exists() else package.parents[1] / "docs"


@router.get("/docs/{path:path}", include_in_schema=False)
def document(request: Request, path: str) -> Response:
    """A page of the docs, or a picture in one."""
    folder = _folder()
    file = (folder / path).resolve()
    if not file.is_relative_to(folder) or not file.is_file():
        raise HTTPException(404)
    if file.suffix == ".svg":
        # A policy of its own: a picture runs no script, and has styles inside.
        return Response(
            file.read_bytes(),
            media_type="image/svg+xml",
            headers={"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"},
        )
    if file.suffix == ".webp":
        return FileResponse(file, media_type="image/webp")
    if file.suffix != ".md":
        raise HTTPException(404)
    title, body = _rendered(file, file.stat().st_mtime_ns)
    return _page(request, title, body)


def _page(request: Request, title: str, body: str) -> HTMLResponse:
    # The text is ours, and the renderer lets no HTML through.
    return page(request, title, h.article(".doc")[Markup(body)])


@lru_cache(maxsize=64)
def _rendered(file: Path, changed: int) -> tuple[str, str]:
    """The title and the HTML of a page. `changed` makes an edited page be rendered again."""
    title, _, text = file.read_text().lstrip("# ").partition("\n")
    return title.strip(), MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
