"""The page of the HTTP API, and the health of the studio."""

from __future__ import annotations

from typing import Any

import htpy as h
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse

from headrace.studio.live.handles import Opened
from headrace.studio.pages import page, section, table

router = APIRouter()


@router.get("/favicon.ico", include_in_schema=False)
def icon() -> RedirectResponse:
    """The icon, for browsers that ask for it by its old name."""
    return RedirectResponse("/static/icon.svg")


@router.get("/healthz", tags=["operations"])
def health(opened: Opened) -> dict[str, str]:
    """That the studio runs and can read its log; status 503 or 400 with the reason if not."""
    opened.log.check_there()
    return {"status": "ok", "log": opened.log.url}


@router.get("/api", include_in_schema=False)
def api(request: Request) -> HTMLResponse:
    """The page of the HTTP API: its requests and what each gives."""
    found = request.app.openapi()
    rows = [
        (
            h.code[method.upper()],
            h.code[path],
            _sentence(operation),
        )
        for path, operations in sorted(found["paths"].items())
        for method, operation in operations.items()
    ]
    token = "Authorization: Bearer TOKEN"
    return page(
        request,
        "HTTP API",
        h.p(".lead")[
            "Every page is made of what these give. Send the token of the printed address as ",
            h.code[token],
            ". The whole description is at ",
            h.a(href="/api/openapi.json")["openapi.json"],
            ".",
        ],
        section("Requests", table(("method", "path", "what it gives"), rows)),
    )


def _sentence(operation: dict[str, Any]) -> str:
    return str(operation.get("description", operation.get("summary", ""))).partition("\n")[0]
