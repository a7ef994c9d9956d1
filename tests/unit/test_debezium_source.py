"""The source over Debezium's engine, with a process in the engine's place."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cdc import Capture
from headrace.cdc.contract import SourceTransaction
from headrace.cdc.debezium.source import DebeziumSource
from headrace.errors import SourceError
from headrace.log import open_log

_ENGINE = """#!{python}
import json, pathlib, sys

folder = pathlib.Path(sys.argv[0]).parent
if sys.argv[1] != "-c":
    sys.stdin.readline()
    print('"ready"', flush=True)
    sys.stdin.readline()
    for batch in (folder / "batches").read_text().splitlines():
        print(batch, flush=True)
        with (folder / "answers").open("a") as answers:
            answers.write(sys.stdin.readline())
    sys.stdin.readline()
"""

_FIELDS = [{"field": "id", "type": "int32"}, {"field": "name", "type": "string"}]
_TRANSACTIONS = "headrace.transaction"

Record = list[Any]


class Engine:
    """Batches of records for a source, and the source."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        program = folder / "engine"
        program.write_text(_ENGINE.format(python=sys.executable))
        program.chmod(0o755)
        connector = {"connector.class": "io.debezium.connector.db2.Db2Connector"}
        self.source = DebeziumSource(connector, python=str(program))

    def _record(self, topic: str, key: Any, value: Any) -> Record:
        self._count += 1
        text = None if key is None else json.dumps(key)
        return [self._count, topic, text, json.dumps(value), [{}, {"at": self._count}]]

    def change(self, op: str, id: int | None, *, tx: str = "7") -> Record:
        """A change of a row; without an id, one without a key."""
        row = {"id": id, "name": "x"}
        key = {"schema": {"fields": _FIELDS[:1]}, "payload": {"id": id}}
        payload = {
            "op": op,
            "after": row if op in "cu" else None,
            "source": {"schema": "dbo", "table": "items", "ts_ms": 1_000},
            "transaction": {"id": f"{tx}:{self._count}"},
        }
        schema = {"fields": [{"field": "after", "fields": _FIELDS}]}
        value = {"schema": schema, "payload": payload}
        return self._record("headrace.dbo.items", None if id is None else key, value)

    def end(self, tx: str = "7") -> Record:
        """The end of a transaction."""
        payload = {"status": "END", "id": f"{tx}:{self._count}", "ts_ms": 2_000}
        return self._record(_TRANSACTIONS, None, {"payload": payload})

    def give(self, *batches: list[Record]) -> None:
        """Let the engine give batches."""
        lines = "".join(json.dumps(batch) + "\n" for batch in batches)
        (self._folder / "batches").write_text(lines)

    @property
    def answers(self) -> list[list[int]]:
        """The numbers that the engine was told: the durable record, and those to keep."""
        return [json.loads(line) for line in (self._folder / "answers").read_text().splitlines()]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path)
    with made.source:
        yield made


def read(source: DebeziumSource, enough: Callable[[list[SourceTransaction]], bool]) -> Any:
    found: list[SourceTransaction] = []
    while not enough(found):
        found += source.read(0.1)
    return found


def test_a_change_without_a_key_is_refused_by_name(engine: Engine) -> None:
    engine.give([engine.change("c", 1), engine.end()], [engine.change("u", None), engine.end()])
    assert engine.source.begin(None) is None
    with pytest.raises(SourceError, match=r"dbo\.items has no primary key"):
        read(engine.source, lambda found: len(found) == 2)


def test_a_truncate_has_no_key(engine: Engine) -> None:
    engine.give([engine.change("c", 1), engine.change("t", None), engine.end()])
    assert engine.source.begin(None) is None
    (transaction,) = read(engine.source, bool)
    assert [change.op for change in transaction.changes] == ["c", "t"]


@pytest.mark.parametrize("count", [7, 8, 9])
def test_a_large_transaction_is_not_held_as_a_whole(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("headrace.cdc.debezium.source._PART_CHANGES", 4)
    records = [engine.change("c", id) for id in range(count)]
    rest = [engine.end(), engine.change("c", 99, tx="8"), engine.end("8")]
    engine.give(records[:3], records[3:6], records[6:], rest, [])
    with (
        open_log(f"file:{tmp_path / 'log'}") as log,
        Capture(engine.source, log, "shop", snapshot="never") as capture,
    ):
        while capture.reached.transactions < 2:
            capture.step(0.1)
        found = [r.value for batch in log.read("shop.dbo.items") for r in batch.records()]
        # One more, with which the engine hears of the last commit.
        capture.step(0.1)
    parts = [(change["source"]["tx"], change["source"]["part"]) for change in found]
    assert parts == [("7:0", 1 + n // 4) for n in range(count)] + [(f"8:{count + 1}", None)]
    last = [change["source"]["last_part"] for change in found]
    assert last == [n // 4 == (count - 1) // 4 for n in range(count)] + [None]
    # Nothing of the first batches may be confirmed, so the engine keeps none of it.
    assert engine.answers[:4] == [[0], [0], [0], [count + 3]]
