"""Who may ask the studio, and for what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from headrace.studio.guard import COOKIE, CSRF, csrf_of
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings

SETTINGS = StudioSettings(log="file:/nowhere", token="secret-token")
HOST = "http://127.0.0.1:8787"


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(studio(SETTINGS), base_url=HOST, follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/learn", "/api", "/api/learn/windows", "/api/openapi.json"])
@pytest.mark.parametrize("token", [None, "", "wrong"])
def test_nothing_is_answered_without_the_token(
    client: TestClient, path: str, token: str | None
) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    answer = client.get(path, headers=headers)
    assert answer.status_code == 401
    assert "The token is missing or wrong" in answer.text


def test_the_token_of_the_address_becomes_a_cookie_that_scripts_cannot_read(
    client: TestClient,
) -> None:
    answer = client.get("/learn?step=3&token=secret-token")
    assert (answer.status_code, answer.headers["location"]) == (303, "/learn?step=3")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.get("/learn").status_code == 200


@pytest.mark.parametrize("host", ["evil.example:8787", "127.0.0.1:9999", "127.0.0.1", ""])
def test_a_host_that_is_not_its_own_is_refused(client: TestClient, host: str) -> None:
    headers = {"host": host, "authorization": "Bearer secret-token"}
    assert client.get("/learn", headers=headers).status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8787", "http://127.0.0.1:9999"]
)
def test_requests_from_other_sites_are_refused(client: TestClient, origin: str) -> None:
    headers = {"origin": origin, "authorization": "Bearer secret-token"}
    assert client.get("/learn", headers=headers).status_code == 403


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8787", "http://localhost:8787"])
def test_its_own_pages_are_answered(client: TestClient, origin: str) -> None:
    headers = {"origin": origin, "authorization": "Bearer secret-token"}
    assert client.get("/learn", headers=headers).status_code == 200


def test_a_change_by_cookie_needs_the_csrf_value(client: TestClient) -> None:
    client.cookies.set(COOKIE, "secret-token")
    assert client.post("/learn").status_code == 403
    assert client.post("/learn", headers={CSRF: "wrong"}).status_code == 403
    # It passes, and there is nothing to post to.
    assert client.post("/learn", headers={CSRF: csrf_of("secret-token")}).status_code == 405


def test_a_program_needs_only_the_token(client: TestClient) -> None:
    assert (
        client.post("/learn", headers={"authorization": "Bearer secret-token"}).status_code == 405
    )


def test_a_read_only_studio_refuses_every_change() -> None:
    settings = StudioSettings(token="secret-token", read_only=True)
    with TestClient(studio(settings), base_url=HOST) as client:
        answer = client.post("/learn", headers={"authorization": "Bearer secret-token"})
        assert (answer.status_code, "read-only" in answer.text) == (403, True)


def test_health_is_open_on_loopback_alone(client: TestClient) -> None:
    assert client.get("/healthz").status_code != 401
    settings = StudioSettings(token="secret-token", host="192.0.2.1")
    with TestClient(studio(settings), base_url="http://192.0.2.1:8787") as outside:
        assert outside.get("/healthz").status_code == 401


def test_answers_forbid_foreign_and_inline_scripts(client: TestClient) -> None:
    policy = client.get("/static/studio.css").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_socket_without_the_token_is_closed(client: TestClient) -> None:
    address = "ws://127.0.0.1:8787/ws/views/x"  # the client names another host by itself
    with pytest.raises(WebSocketDisconnect) as closed, client.websocket_connect(address):
        pytest.fail("it was accepted")
    assert closed.value.code == 4403


def test_the_token_is_in_no_repr() -> None:
    assert "secret-token" not in repr(SETTINGS)
