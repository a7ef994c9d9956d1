"""The frame of every page, and the parts that pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import htpy as h
from htpy import Element, Node
from starlette.requests import Request
from starlette.responses import HTMLResponse

TITLE = "headrace studio"

_NAVIGATION = (
    ("/", "Overview"),
    ("/dashboard", "Dashboard"),
    ("/pipelines", "Pipelines"),
    ("/views", "Views"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/queues", "Queues"),
    ("/domains", "Domains"),
    ("/sources", "Sources"),
    ("/stores", "Stores"),
    ("/learn", "Learn"),
    ("/api", "API"),
)
_SCRIPTS = ("vendor/htmx.min.js", "vendor/hx-sse.min.js", "vendor/uplot.min.js", "studio.js")
_AT_ONCE = _SCRIPTS[:2]
_HTMX = '{"includeIndicatorCSS": false, "history": false, "extensions": "sse"}'


def page(
    request: Request, title: str, *content: Node, status: int = 200, wide: bool = False
) -> HTMLResponse:
    """A whole page: navigation, a heading and its content."""
    here = request.url.path
    body = [
        h.a(".skip", href="#content")["Skip to the content"],
        _navigation(here),
        h.main("#content", class_="wide" if wide else None)[h.h1[title], content],
    ]
    return HTMLResponse(
        str(_document(title, body, request.state.csrf)),
        status_code=status,
        headers={"cache-control": "no-store"},
    )


def fragment(*content: Node) -> HTMLResponse:
    """A part of a page, for htmx to put into it."""
    return HTMLResponse(str(h.fragment[content]), headers={"cache-control": "no-store"})


def refusal(message: str, hint: str) -> Element:
    """A page for a request that may not pass. It shows nothing of the log."""
    return _document(message, h.main("#content.alone")[h.h1[message], h.p[hint]], None)


def _document(title: str, body: Node, csrf: str | None) -> Element:
    return h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.title[title if title == TITLE else f"{title} · {TITLE}"],
            h.meta(name="htmx-config", content=_HTMX),
            csrf and h.meta(name="csrf", content=csrf),
            h.link(rel="icon", href="/static/icon.svg", type="image/svg+xml"),
            h.link(rel="stylesheet", href="/static/vendor/uplot.min.css"),
            h.link(rel="stylesheet", href="/static/studio.css"),
            # Not deferred: it sets the theme before anything is drawn.
            h.script(src="/static/theme.js"),
            # Neither is htmx: a deferred one starts before its extension is there, now and then.
            [h.script(src=f"/static/{name}", defer=name not in _AT_ONCE) for name in _SCRIPTS],
        ],
        h.body[body],
    ]


def _navigation(here: str) -> Element:
    def link(path: str, name: str) -> Element:
        inside = here == path or (path != "/" and here.startswith(f"{path}/"))
        return h.a(href=path, aria_current="page" if inside else None)[name]

    return h.header(".bar")[
        h.a(".brand", href="/")[h.span(".drop", aria_hidden="true"), "headrace"],
        h.nav(aria_label="Studio")[[link(path, name) for path, name in _NAVIGATION]],
        h.button("#theme", type="button", title="Light or dark")["◐"],
    ]


# Parts of pages


@dataclass(frozen=True)
class Fact:
    """A number or a short text with its name, and a kind that colours it: good, warn or bad."""

    name: str
    value: str
    kind: str = ""
    hint: str = ""


def facts(found: Iterable[Fact], *, id: str | None = None) -> Element:
    """Facts in a row. Each value can be found by its name: `[data-fact="rows"]`."""
    return h.dl(".facts", id=id)[
        (
            h.div(class_=fact.kind or None, title=fact.hint or None)[
                h.dt[fact.name], h.dd(data_fact=fact.name)[fact.value]
            ]
            for fact in found
        )
    ]


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Node]],
    *,
    numeric: Iterable[str] = (),
    caption: str | None = None,
    empty: Node = "Nothing yet.",
    id: str | None = None,
) -> Node:
    """A table that scrolls by itself where it is too wide. Without rows, a sentence."""
    found = list(rows)
    if not found:
        return h.p(".empty", id=id)[empty]
    right = [name in set(numeric) for name in columns]
    return h.div(".scroll", id=id, tabindex="0", role="region", aria_label=caption or columns[0])[
        h.table[
            caption and h.caption[caption],
            h.thead[
                h.tr[
                    (
                        h.th(scope="col", class_="number" if n else None)[name]
                        for name, n in zip(columns, right, strict=True)
                    )
                ]
            ],
            h.tbody[
                (
                    h.tr[
                        (
                            h.td(class_="number" if n else None)[cell]
                            for cell, n in zip(row, right, strict=True)
                        )
                    ]
                    for row in found
                )
            ],
        ]
    ]


def section(title: str, *content: Node, id: str | None = None) -> Element:
    """A titled part of a page."""
    return h.section(id=id)[h.h2[title], content]


def badge(text: str, kind: str = "") -> Element:
    """A short state, such as `running`."""
    return h.span(class_=f"badge {kind}".strip())[text]


def live(path: str, content: Node, *, id: str) -> Element:
    """A part of a page that the server replaces whenever it changes."""
    return h.div(".live", {"hx-sse:connect": path, "hx-swap": "innerMorph"}, id=id)[content]


def failure(message: str, hint: str | None = None) -> Element:
    """An error, in words."""
    return h.div(".failure", role="alert")[h.p[message], hint and h.p(".hint")[hint]]
