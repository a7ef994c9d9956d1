"""PostgreSQL through Debezium's engine: its changes are those that a capture of our own would have.

`scripts/services debezium` brings the engine, of 200 MB. Without it the tests are skipped.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.baselines import debezium
from headrace.cdc import run
from headrace.cdc.capture import CrashPoint
from headrace.cdc.debezium.source import DebeziumSource
from headrace.errors import MissingExtra, SourceUnavailable
from headrace.log import Log, open_log
from tests.conformance.sources.stage import Crashed, crash_at
from tests.servers.postgresql import Database
from tests.waiting import wait_until

engine = pytest.mark.skipif(debezium.missing() is not None, reason=str(debezium.missing()))

_TABLES = (
    """CREATE TABLE kinds (id bigint PRIMARY KEY, small smallint, money numeric(10,2), free numeric,
       twice double precision, flag boolean, bytes bytea, doc jsonb, label uuid, day date,
       at timestamp, at3 timestamp(3), stamp timestamptz, list int[], words text)""",
    "CREATE TABLE orders (id int PRIMARY KEY, what text)",
)
_ROW = """INSERT INTO kinds VALUES (1, -2, -3.5, 4.25, 0.1, true, '\\x00ff', '{"a": 1}',
    '123e4567-e89b-12d3-a456-426655440000', '2024-02-03', '2024-02-03 04:05:06.789012',
    '2024-02-03 04:05:06.789', '2024-02-03 04:05:06.789012+02', '{1,2}', 'täxt')"""


def properties(database: Database) -> dict[str, str]:
    found = urlsplit(database.url)
    made = debezium.properties(
        str(found.hostname), int(found.port or 0), str(found.username), database.name, "public.*"
    )
    return made | {"snapshot.mode": "initial", "publication.autocreate.mode": "filtered"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(f"file:{tmp_path / 'log'}") as opened:
        yield opened


def capture(
    database: Database,
    log: Log,
    until: Callable[[], bool],
    crash_point: CrashPoint = lambda point: None,
) -> None:
    """Capture until a condition holds. The process of the engine is killed then."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        source = DebeziumSource(properties(database), python=str(debezium.ENVIRONMENT))
        try:
            with source:
                run(
                    source,
                    log,
                    "shop",
                    snapshot="never",
                    stopped=stop.is_set,
                    crash_point=crash_point,
                )
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_until(lambda: failed or until())
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def changes(log: Log, table: str) -> list[dict[str, Any]]:
    topic = f"shop.public.{table}"
    if topic not in {known.name for known in log.topics()}:
        return []
    return [
        {**record.value, "commit": record.commit}
        for batch in log.read(topic)
        for record in batch.records()
        if record.value is not None
    ]


def folded(log: Log, table: str) -> dict[str, Any]:
    last = {change["key"]: change["after"] for change in changes(log, table)}
    return {key: row for key, row in last.items() if row is not None}


@pytest.mark.slow
@pytest.mark.service
@engine
def test_each_transaction_is_in_the_log_once_whatever_ends_between(
    postgresql: Database, log: Log
) -> None:
    postgresql.execute(
        *_TABLES, _ROW, "INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 50) i"
    )
    capture(postgresql, log, lambda: len(folded(log, "orders")) + len(folded(log, "kinds")) == 51)
    (row,) = folded(log, "kinds").values()
    assert {name: str(value) for name, value in row.items() if name != "stamp"} == {
        "id": "1",
        "small": "-2",
        "money": "-3.50",
        "free": '{"scale":2,"value":"Aak="}',
        "twice": "0.1",
        "flag": "True",
        "bytes": "b'\\x00\\xff'",
        "doc": '{"a": 1}',
        "label": "123e4567-e89b-12d3-a456-426655440000",
        "day": "2024-02-03",
        "at": "2024-02-03 04:05:06.789012",
        "at3": "2024-02-03 04:05:06.789000",
        "list": "[1,2]",
        "words": "täxt",
    }
    assert row["stamp"].isoformat() == "2024-02-03T02:05:06.789012+00:00"

    postgresql.execute(
        "BEGIN; UPDATE orders SET what = 'y' WHERE id < 3; UPDATE kinds SET small = 3; COMMIT",
        "BEGIN; INSERT INTO orders VALUES (99, 'no'); ROLLBACK",
        "UPDATE orders SET id = 100 WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    )
    capture(postgresql, log, lambda: len(folded(log, "orders")) == 49)
    postgresql.execute("INSERT INTO orders VALUES (101, 'z')")
    capture(postgresql, log, lambda: len(folded(log, "orders")) == 50)

    expected = {
        f'{{"id":{id}}}': {"id": id, "what": what} for id, what in postgresql.query("TABLE orders")
    }
    assert folded(log, "orders") == expected
    streamed = changes(log, "orders")[50:]
    assert [(c["op"], c["before"], c["after"]) for c in streamed] == [
        ("u", {"id": 1, "what": "x"}, {"id": 1, "what": "y"}),
        ("u", {"id": 2, "what": "x"}, {"id": 2, "what": "y"}),
        ("d", {"id": 1, "what": "y"}, None),
        ("c", None, {"id": 100, "what": "y"}),
        ("d", {"id": 2, "what": "y"}, None),
        ("c", None, {"id": 101, "what": "z"}),
    ]
    commits = defaultdict(set)
    for change in [*streamed, *changes(log, "kinds")[1:]]:
        commits[change["source"]["tx"]].add(change["commit"])
    assert [len(found) for found in commits.values()] == [1, 1, 1, 1]


@pytest.mark.slow
@pytest.mark.service
@engine
def test_a_large_transaction_goes_on_after_its_last_part(
    postgresql: Database, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cdc.debezium.source._PART_CHANGES", 10)
    postgresql.execute(_TABLES[1], "INSERT INTO orders VALUES (0, 'first')")
    capture(postgresql, log, lambda: len(folded(log, "orders")) == 1)
    postgresql.execute(
        "INSERT INTO orders VALUES (1, 'before')",
        "INSERT INTO orders SELECT i, 'x' FROM generate_series(2, 46) i",
    )
    with pytest.raises(Crashed):
        capture(postgresql, log, lambda: False, crash_at("copied", 4))
    written = changes(log, "orders")
    assert written[-1]["source"]["part"] is not None and not written[-1]["source"]["last_part"]
    capture(postgresql, log, lambda: len(folded(log, "orders")) == 47)
    found = [change["after"]["id"] for change in changes(log, "orders")]
    assert found == list(range(47))
    numbers = [change["source"]["part"] for change in changes(log, "orders")[2:]]
    assert numbers == sorted(numbers) and set(numbers) == set(range(1, numbers[-1] + 1))
    assert [change["source"]["last_part"] for change in changes(log, "orders")][-1] is True


@pytest.mark.slow
@pytest.mark.service
@engine
def test_an_engine_that_cannot_start_says_why_without_the_password(postgresql: Database) -> None:
    wrong = properties(postgresql) | {"database.dbname": "nowhere", "database.password": "geheim"}
    with DebeziumSource(wrong, python=str(debezium.ENVIRONMENT)) as source:
        source.attach()
        with pytest.raises(SourceUnavailable, match="Debezium's engine ended") as caught:
            source.begin(None)
            wait_until(lambda: source.read(0.5))
    assert "geheim" not in str(caught.value)


def test_a_missing_package_names_its_extra() -> None:
    connector = {"connector.class": "io.debezium.connector.mysql.MySqlConnector"}
    with DebeziumSource(connector) as source, pytest.raises(MissingExtra) as caught:
        source.attach()
    assert "headrace[debezium]" in caught.value.hint
