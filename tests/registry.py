"""A small schema registry on loopback: as much of Confluent's REST API as its clients use."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Registry:
    """Schemas by id and by subject. With `broken` it answers that status to everything."""

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    broken: int | None = None
    login: str | None = None
    asked: list[str] = field(default_factory=list)
    """The paths that were read."""
    url: str = ""

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Register a schema, and return its id."""
        wanted = {name: text for name, text in schema.items() if name in ("schema", "schemaType")}
        number = next((n for n, s in self.schemas.items() if s == wanted), len(self.schemas) + 1)
        self.schemas[number] = wanted
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, path: list[str], body: dict[str, Any] | None) -> Any:
        """The answer to a request; None if there is none."""
        match path:
            case ["subjects", subject, "versions"] if body is not None:
                return {"id": self.register(subject, body)}
            case ["subjects", subject] if body is not None:
                number = self.register(subject, body)
                return {"subject": subject, "version": 1, "id": number, **self.schemas[number]}
            case ["subjects", subject, "versions"]:
                found = self.subjects.get(subject)
                return found and list(range(1, len(found) + 1))
            case ["subjects", subject, "versions", version]:
                number = self.subjects[subject][int(version) - 1]
                return {"subject": subject, "version": int(version), "id": number} | self.schemas[
                    number
                ]
            case ["schemas", "ids", number]:
                return self.schemas.get(int(number))
        return None


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """Serve a registry, at its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            self._answer(None)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self._answer(json.loads(self.rfile.read(length)))

        def _answer(self, body: dict[str, Any] | None) -> None:
            if registry.broken is not None:
                self._send(registry.broken, {"error_code": registry.broken, "message": "broken"})
                return
            if registry.login is not None:
                wanted = "Basic " + base64.b64encode(registry.login.encode()).decode()
                if self.headers.get("Authorization") != wanted:
                    self._send(401, {"error_code": 401, "message": "Unauthorized"})
                    return
            parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            found = registry.answer(parts, body)
            if found is None:
                self._send(404, {"error_code": 40403, "message": "not found"})
            else:
                self._send(200, found)

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        registry.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
