"""A jar is used only if it matches its lock."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import headrace
from headrace.errors import InvalidSetting, JarRefused, JarUnavailable, Retryable, ServerError
from headrace.servers.java import Fetching, Jar, locked
from headrace.servers.java.jars import CENTRAL, FOLDER, cache, fetch, repository
from headrace.servers.java.ports import free
from tests.waiting import left

SECRET = "hunter2-is-the-secret"
CONTENT = b"not really a jar" * 100_000


@pytest.fixture
def jar() -> Jar:
    return Jar("org.example:thing_2.13:1.0", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def served(jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jar in a repository that is a folder."""
    file = tmp_path / "repository" / jar.path
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    monkeypatch.setenv("HEADRACE_MAVEN", (tmp_path / "repository").as_uri())
    return file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder."""
    monkeypatch.delenv("HEADRACE_MAVEN", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def files(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def test_a_jar_is_fetched_once(jar: Jar, served: Path, tmp_path: Path) -> None:
    progress = Fetching()
    (file,) = fetch([jar], tmp_path / "cache", progress)
    assert file.read_bytes() == CONTENT
    assert (progress.jars, progress.done, progress.bytes) == (1, 1, len(CONTENT))
    served.unlink()
    assert fetch([jar], tmp_path / "cache") == [file]


def test_a_cache_is_a_repository_for_others(
    jar: Jar, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch([jar], tmp_path / "cache")
    monkeypatch.setenv("HEADRACE_MAVEN", (tmp_path / "cache").as_uri())
    (file,) = fetch([jar], tmp_path / "another")
    assert file.read_bytes() == CONTENT


def test_a_tampered_jar_is_refused_and_not_kept(jar: Jar, served: Path, tmp_path: Path) -> None:
    served.write_bytes(CONTENT[:-1] + b"!")
    with pytest.raises(JarRefused, match=r"org\.example:thing_2\.13:1\.0 .* checksum") as refused:
        fetch([jar], tmp_path / "cache")
    assert refused.value.details["expected"] == jar.sha256
    assert files(tmp_path / "cache") == []


def test_a_jar_that_was_changed_in_the_cache_is_refused_and_fetched_anew(
    jar: Jar, served: Path, tmp_path: Path
) -> None:
    (file,) = fetch([jar], tmp_path / "cache")
    file.write_bytes(CONTENT + b"!")
    with pytest.raises(JarRefused, match="was removed"):
        fetch([jar], tmp_path / "cache")
    assert not file.exists()
    assert fetch([jar], tmp_path / "cache")[0].read_bytes() == CONTENT


def test_a_jar_that_cannot_be_had_is_told_with_what_to_do(
    jar: Jar, served: Path, tmp_path: Path
) -> None:
    served.unlink()
    with pytest.raises(JarUnavailable, match=r"org\.example:thing_2\.13:1\.0") as missing:
        fetch([jar], tmp_path / "cache")
    assert isinstance(missing.value, Retryable)
    assert "HEADRACE_MAVEN" in missing.value.hint
    assert files(tmp_path / "cache") == []


def test_nobody_at_an_address_is_a_jar_that_cannot_be_had(
    jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (closed_port,) = free(1)
    monkeypatch.setenv("HEADRACE_MAVEN", f"http://user:{SECRET}@127.0.0.1:{closed_port}/maven2")
    with pytest.raises(JarUnavailable, match="refused") as missing:
        fetch([jar], tmp_path / "cache")
    assert SECRET not in str(missing.value)
    assert f"127.0.0.1:{closed_port}/maven2" in str(missing.value)


@contextlib.contextmanager
def server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The address of a server that gives this answer, for a while."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *words: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"127.0.0.1:{made.server_port}"
        finally:
            made.shutdown()
            thread.join()


def test_who_a_mirror_sends_us_on_to_is_not_told_its_password(
    jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: dict[str, str | None] = {}

    def store(asked: BaseHTTPRequestHandler) -> None:
        received["store"] = asked.headers["Authorization"]
        asked.send_response(200)
        asked.end_headers()
        asked.wfile.write(CONTENT)

    with server(store) as behind:

        def mirror(asked: BaseHTTPRequestHandler) -> None:
            received["mirror"] = asked.headers["Authorization"]
            asked.send_response(302)
            asked.send_header("Location", f"http://{behind}{asked.path}")
            asked.end_headers()

        with server(mirror) as front:
            monkeypatch.setenv("HEADRACE_MAVEN", f"http://ann:{SECRET}@{front}/maven2")
            expected = repository().headers["Authorization"]
            (file,) = fetch([jar], tmp_path / "cache")
    assert file.read_bytes() == CONTENT
    assert received == {"mirror": expected, "store": None}


def test_a_cache_that_cannot_be_used_is_told(jar: Jar, served: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    with pytest.raises(ServerError, match="jar cache cannot be used: Not a directory"):
        fetch([jar], tmp_path / "cache")


def test_processes_that_fetch_at_once_all_get_it(jar: Jar, served: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from headrace.servers.java.jars import fetch;"
        "from headrace.servers.java import Jar; sys.stdin.read();"
        f"print(fetch([Jar({jar.coordinates!r}, {jar.sha256!r})], Path(sys.argv[1]))[0])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parents[1])}
    fetching = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "cache")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(4)
    ]
    for process in fetching:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    said = {process.communicate(timeout=left())[0].strip() for process in fetching}
    assert said == {str(tmp_path / "cache" / jar.path)}
    assert files(tmp_path / "cache") == [jar.path]


def test_the_cache_is_where_the_user_keeps_caches(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache() == home / ".cache" / "headrace" / "jars"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache() == Path("/elsewhere/headrace/jars")


def test_jars_come_from_maven_central_unless_somebody_says_otherwise(home: Path) -> None:
    assert repository().url == CENTRAL


def test_a_mirror_in_mavens_settings_is_used_and_its_password_is_not_shown(home: Path) -> None:
    (home / ".m2").mkdir()
    (home / ".m2" / "settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors>'
        "<mirror><id>other</id><mirrorOf>jcenter</mirrorOf><url>http://no.example</url></mirror>"
        "<mirror><id>ours</id><mirrorOf>*,!apart</mirrorOf><url>http://m.example/all</url></mirror>"
        "</mirrors><servers><server><id>ours</id><username>ann</username>"
        f"<password>{SECRET}</password></server></servers></settings>"
    )
    found = repository()
    assert found.url == "http://m.example/all"
    assert found.headers["Authorization"].startswith("Basic ")
    assert SECRET not in repr(found)
    assert found.headers["Authorization"] not in repr(found)


@pytest.mark.parametrize("text", ["", "<settings>", "<settings/>"])
def test_settings_of_maven_without_a_mirror_change_nothing(home: Path, text: str) -> None:
    (home / ".m2").mkdir()
    (home / ".m2" / "settings.xml").write_text(text)
    assert repository().url == CENTRAL


def test_an_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_MAVEN", f"ftp://ann:{SECRET}@m.example")
    with pytest.raises(InvalidSetting, match="not the address of a Maven repository") as refused:
        repository()
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("lock", sorted(FOLDER.glob("*.lock")), ids=lambda path: path.name)
def test_a_lock_names_every_jar_once_and_no_address(lock: Path) -> None:
    assert "://" not in lock.read_text()
    entries = locked(lock.stem)
    assert len({jar.coordinates.rpartition(":")[0] for jar in entries}) == len(entries) > 0
    for jar in entries:
        assert jar.coordinates.count(":") == 2
        assert len(bytes.fromhex(jar.sha256)) == 32
