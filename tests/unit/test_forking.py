"""A prepared process forks on request; without one, a new Python is started."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.runtime.prefork import client, starting
from tests.waiting import left

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such forks")

LAUNCH = str(Path(client.__file__))
NOBODY = "/bin/false"
"""The program to run if there is no fork: one without output."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "socket"


@pytest.fixture
def server(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    with starting._server(place) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def launched(
    place: Path, python: str, *words: str, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", LAUNCH, str(place), python, *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=left(),
    )


def test_a_fork_runs_a_module_with_the_environment_and_the_output_of_who_asked(
    place: Path, server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    done = launched(place, NOBODY, "-m", "site", folder=tmp_path, PYTHONUSERBASE="/somewhere")
    assert "USER_BASE: '/somewhere'" in done.stdout
    assert done.returncode == 0
    assert server.poll() is None


def test_forks_do_not_know_of_each_other(place: Path, server: subprocess.Popen[bytes]) -> None:
    for base in ("/one", "/two"):
        done = launched(place, NOBODY, "-m", "site", PYTHONUSERBASE=base)
        assert f"USER_BASE: '{base}'" in done.stdout


def test_what_goes_wrong_in_a_fork_is_told_where_it_was_asked_for(
    place: Path, server: subprocess.Popen[bytes]
) -> None:
    done = launched(place, NOBODY, "-m", "no_such_module")
    assert "No module named no_such_module" in done.stderr
    again = launched(place, NOBODY, "-m", "this")
    assert again.stdout.startswith("The Zen of Python")


@pytest.mark.parametrize("said", [b"", b"\0", client.LENGTH.pack(100) + b'{"wor'])
def test_whoever_breaks_off_while_asking_leaves_nothing_behind(
    place: Path, server: subprocess.Popen[bytes], said: bytes
) -> None:
    def ask(said: bytes) -> None:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(place))
            if said:
                socket.send_fds(line, [said], [1, 2])

    assert launched(place, NOBODY, "-m", "this").stdout
    before = os.listdir(f"/proc/{server.pid}/fd")
    for _ in range(3):
        ask(said)
    assert launched(place, NOBODY, "-m", "this").stdout
    assert os.listdir(f"/proc/{server.pid}/fd") == before


def test_without_a_process_to_fork_there_is_python(place: Path) -> None:
    done = launched(place, sys.executable, "-c", "print('here')")
    assert done.stdout == "here\n"


def test_after_the_process_was_killed_there_is_python(
    place: Path, server: subprocess.Popen[bytes]
) -> None:
    assert launched(place, NOBODY, "-m", "this").stdout
    server.kill()
    server.wait()
    assert launched(place, sys.executable, "-c", "print('here')").stdout == "here\n"


def test_the_process_ends_with_who_has_started_it(place: Path) -> None:
    code = f"from pathlib import Path; from headrace.runtime.prefork import starting; import time\n\
print(starting._server(Path({str(place)!r})).pid, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        number = int(starter.stdout.readline())
        assert launched(place, NOBODY, "-m", "this").stdout
        starter.kill()
    while _lives(number):
        os.sched_yield()


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_whoever_asked_is_told_to_end_and_the_fork_ends(
    place: Path, server: subprocess.Popen[bytes]
) -> None:
    words = [sys.executable, "-I", "-S", LAUNCH, str(place), NOBODY]
    serving = ["-m", "http.server", "--bind", "127.0.0.1", "0"]
    with subprocess.Popen([*words, *serving], stdout=subprocess.PIPE) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline().startswith(b"Serving HTTP")
        asking.send_signal(signal.SIGTERM)
        assert asking.stdout.read() == b"", "the fork has the other end, and is gone"
    assert server.poll() is None


def test_sparks_daemon_is_a_fork_that_ends_with_its_input(
    place: Path, server: subprocess.Popen[bytes]
) -> None:
    words = [sys.executable, "-I", "-S", LAUNCH, str(place), NOBODY, "-m", "pyspark.daemon"]
    with subprocess.Popen(
        [*words, "pyspark.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as asking:
        assert asking.stdin is not None and asking.stdout is not None
        (port,) = struct.unpack("!i", asking.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as line:
            assert len(line.recv(4)) == 4, "the id of a worker"
        asking.stdin.close()
        assert asking.wait(left()) == 0
    assert server.poll() is None


def test_a_fork_imports_from_the_folder_and_the_path_of_who_asked(
    place: Path, server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "path"
    path.mkdir()
    (tmp_path / "here.py").write_text("import there\nprint(there.NAME)\n")
    (path / "there.py").write_text("NAME = 'found'\n")
    done = launched(place, NOBODY, "-m", "here", folder=tmp_path, PYTHONPATH=str(path))
    assert done.stdout == "found\n", done.stderr


def test_forks_hash_text_as_sparks_other_processes_do(place: Path, tmp_path: Path) -> None:
    (tmp_path / "hashed.py").write_text("print(hash('a key'))\n")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONHASHSEED"}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONHASHSEED", raising=False)
        server = starting._server(place)
    with server:
        forked = launched(place, NOBODY, "-m", "hashed", folder=tmp_path).stdout
        assert server.stdin is not None
        server.stdin.close()
    fresh = subprocess.run(
        [sys.executable, "hashed.py"],
        cwd=tmp_path,
        env={**environment, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert forked == fresh.stdout


def test_the_process_that_is_forked_has_no_threads_but_the_allocators(
    place: Path, server: subprocess.Popen[bytes]
) -> None:
    assert launched(place, NOBODY, "-m", "this").stdout
    names = {
        task.joinpath("comm").read_text() for task in Path(f"/proc/{server.pid}/task").iterdir()
    }
    assert names <= {"python\n", "jemalloc_bg_thd\n"}, "a fork would miss the others"
    assert len(os.listdir(f"/proc/{server.pid}/task")) <= len(names)
