"""The guard in front of every request: Host, Origin, token and CSRF, and headers of every answer.

A web page of somebody else, open in the same browser, can send requests to a server on loopback. So
each request names a host that the studio answers to (a rebound name is none), comes from its own
pages or from no page at all, and carries the token: as a cookie, or as `Authorization: Bearer`.
With the cookie, a request that changes something needs the page's CSRF value too.
"""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.studio.pages import refusal
from headrace.studio.settings import StudioSettings

COOKIE = "headrace-token"
CSRF = "x-headrace-csrf"

_SAFE = {"GET", "HEAD", "OPTIONS"}
_OPEN = ("/static/", "/favicon.ico")
"""Paths without data, which need no token."""
_OPEN_ON_LOOPBACK = ("/metrics", "/healthz")

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware that answers for the application if a request may not pass."""

    def __init__(self, app: ASGIApp, settings: StudioSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refused = self._refuse(scope)
        if refused is None:
            scope["state"]["csrf"] = csrf_of(self._settings.token)
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4403, "reason": "refused"})
        else:
            await refused(scope, receive, _with_headers(send))

    def _refuse(self, scope: Scope) -> Response | None:
        """The answer to a request that may not pass; None if it may."""
        settings, headers = self._settings, Headers(scope=scope)
        path, method = scope["path"], scope.get("method", "GET")
        if headers.get("host", "") not in settings.hosts:
            return _answer(
                scope, 421, "This host is not the studio's", f"Open {settings.origin} instead"
            )
        if (origin := headers.get("origin")) is not None and not self._own(origin):
            return _answer(scope, 403, "Requests from other sites are refused", "Use its own pages")
        changes = method not in _SAFE
        if not changes and path.startswith(_OPEN):
            return None
        if not changes and settings.on_loopback and path in _OPEN_ON_LOOPBACK:
            return None
        if method == "GET" and scope["type"] == "http" and (moved := self._sign_in(scope)):
            return moved
        by_cookie = _same(_cookie(headers), settings.token)
        if not by_cookie and not _same(_bearer(headers), settings.token):
            return _answer(
                scope,
                401,
                "The token is missing or wrong",
                "Open the address that `headrace studio` printed. A program sends the token as "
                "`Authorization: Bearer TOKEN`",
            )
        if changes and settings.read_only:
            return _answer(
                scope, 403, "This studio is read-only", "Start it again without --read-only"
            )
        if changes and by_cookie and not _same(headers.get(CSRF), csrf_of(settings.token)):
            return _answer(
                scope, 403, "The CSRF value is missing", "Reload the page, and try again"
            )
        return None

    def _own(self, origin: str) -> bool:
        return origin.removeprefix("http://") in self._settings.hosts and origin.startswith("http:")

    def _sign_in(self, scope: Scope) -> Response | None:
        """Move a token from the address into a cookie, so that no link or history keeps it."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if not _same(given, self._settings.token):
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        moved = RedirectResponse(scope["path"] + (f"?{rest}" if rest else ""), status_code=303)
        moved.set_cookie(COOKIE, self._settings.token, httponly=True, samesite="strict", path="/")
        return moved


def csrf_of(token: str) -> str:
    """The CSRF value of pages: known to them, and not to other sites."""
    return hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()


def _same(given: str | None, wanted: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), wanted.encode())


def _cookie(headers: Headers) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except Exception:
        return None
    return None if found is None else found.value


def _bearer(headers: Headers) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token if kind.lower() == "bearer" else None


def _answer(scope: Scope, status: int, message: str, hint: str) -> Response:
    if scope["path"].startswith(("/api/", "/ws/", "/metrics", "/healthz")):
        return JSONResponse({"error": message, "hint": hint}, status_code=status)
    return HTMLResponse(str(refusal(message, hint)), status_code=status)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
