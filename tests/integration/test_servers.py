"""Servers of tests: whole after a kill, apart for each test, and gone after a killed test run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.servers.java import ports
from tests.servers import guard, mariadb, packages, postgresql, redis
from tests.servers.mariadb import Mariadb
from tests.servers.postgresql import Postgresql
from tests.servers.redis import Redis
from tests.servers.server import REQUIRED, Server
from tests.waiting import started, wait_until

pytestmark = pytest.mark.service


def test_a_killed_postgresql_comes_back_with_what_was_committed() -> None:
    with Postgresql.running() as server, server.database() as database:
        database.execute("CREATE TABLE kept (id int)", "INSERT INTO kept VALUES (1)")
        server.kill()
        assert not server.answers()
        server.start()
        assert database.query("SELECT id FROM kept") == [(1,)]


def test_a_killed_mariadb_comes_back_with_what_was_committed() -> None:
    with Mariadb.running() as server, server.database() as database:
        database.execute("CREATE TABLE kept (id int)", "INSERT INTO kept VALUES (1)")
        server.kill()
        assert not server.answers()
        server.start()
        assert database.query("SELECT id FROM kept") == [(1,)]


def test_a_killed_redis_comes_back_with_what_was_written() -> None:
    with Redis.running() as server, server.database() as database:
        with contextlib.closing(database.connect()) as client:
            client.set("kept", 1)
        server.kill()
        assert not server.answers()
        server.start()
        with contextlib.closing(database.connect()) as client:
            assert client.get("kept") == b"1"


def test_postgresql_decodes_its_log(postgresql: postgresql.Database) -> None:
    postgresql.query("SELECT pg_create_logical_replication_slot('left_behind', 'pgoutput')")
    assert postgresql.query("SHOW wal_level") == [("logical",)]


def test_mariadb_logs_rows_with_the_names_of_their_columns(mariadb: mariadb.Database) -> None:
    ((name, metadata),) = mariadb.query("SHOW VARIABLES LIKE 'binlog_row_metadata'")
    assert (name, metadata) == ("binlog_row_metadata", "FULL")


def test_each_test_has_a_redis_of_its_own(redis_server: Redis, redis: redis.Database) -> None:
    with redis_server.database() as other, contextlib.closing(other.connect()) as client:
        client.set("other", 1)
        with contextlib.closing(redis.connect()) as own:
            assert own.keys() == []


_RUN = """
import sys, time
from pathlib import Path
from tests.servers.redis import Redis
from tests.servers.sharing import shared

with shared(Redis, Path(sys.argv[1])) as server:
    print(server.port, server.folder, flush=True)
    sys.stdin.read()
"""


def _user(base: Path) -> tuple[subprocess.Popen[str], int, Path]:
    """A process that shares a server, with the server's port and folder."""
    command = [sys.executable, "-c", _RUN, str(base)]
    pipe = subprocess.PIPE
    process = started(
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0)
    )
    assert process.stdout is not None
    port, folder = process.stdout.readline().split()
    return process, int(port), Path(folder)


def test_a_shared_server_outlives_its_users_except_the_last_one_even_if_all_are_killed(
    tmp_path: Path, redis_server: Redis
) -> None:
    first, port, folder = _user(tmp_path / "shared")
    second, same_port, _ = _user(tmp_path / "shared")
    assert same_port == port
    first.kill()
    first.wait()
    assert ports.answers(port)
    second.kill()
    second.wait()
    wait_until(lambda: not folder.exists())
    assert not ports.answers(port)
    # The next run starts its own.
    assert _user(tmp_path / "shared")[2] != folder


def test_a_server_of_a_test_leaves_nothing_behind() -> None:
    with Redis.running() as server:
        process = guard.running(server.folder)
        assert process is not None and process.alive()
    assert not process.alive()
    wait_until(lambda: not server.folder.exists())


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="nonsense"), Postgresql.running("nonsense=1"):
        pass


@pytest.mark.parametrize("kind", [Postgresql, Mariadb, Redis])
def test_what_a_server_lacks_is_skipped_with_the_reason_unless_it_is_required(
    kind: type[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "find", lambda name: None)
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"no {kind.name} here: run make services"):
        kind(Path("unused"), 1)
    monkeypatch.setenv(REQUIRED, "required")
    with pytest.raises(pytest.fail.Exception, match=f"no {kind.name} here"):
        kind(Path("unused"), 1)
