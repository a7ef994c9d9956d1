"""A pipeline that keeps copies of captured tables in stores until it is killed: `FOLDER STORES`.

STORES is the JSON of `Places`. It writes a line for each point of a batch that is reached.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import headrace as hr
from headrace.application.run import Run
from headrace.log import open_log
from headrace.runtime.session import SparkSettings
from tests.waiting import started, wait_until

SCHEMAS = {
    "sqlite": {
        "orders": ("id bigint, tx bigint, note string", "id"),
        "lines": ("id bigint, tx bigint, note string", "id"),
    },
    "postgresql": {
        "orders": ("id bigint, customer string, total decimal(12, 2), note string", "id"),
        "lines": ("order_id bigint, line int, product string", "order_id,line"),
    },
}
"""The columns and the key of each table."""


@dataclass(frozen=True)
class Places:
    """The captured database and the stores of the copies."""

    kind: str
    schema: str
    postgres: str
    redis: str
    delta: str
    opensearch: str = ""
    """The address of an OpenSearch, if there is to be one."""


def declare(places: Places) -> hr.App:
    """An application with a copy of each table in stores of every kind."""
    app = hr.App("copies")
    stores: Mapping[str, list[hr.Store]] = {
        "orders": [
            hr.Search(columns=["note"]),
            hr.Postgres(places.postgres),
            hr.Redis(places.redis),
            hr.Delta(f"{places.delta}/orders"),
        ],
        "lines": [hr.Postgres(places.postgres), hr.Delta(f"{places.delta}/lines", history=True)],
    }
    if places.opensearch:
        search = hr.OpenSearch(places.opensearch, settings={"number_of_replicas": 0})
        stores["orders"].append(search)
    schemas = SCHEMAS.get(places.kind, SCHEMAS["postgresql"])
    for table, (columns, key) in schemas.items():
        topic = f"shop.{places.schema}.{table}"
        captured = app.captured(topic, schema=columns, key=key.split(","))
        app.view(table, captured, store=stores[table])
    return app


class Replicating:
    """The process. It counts the points that it reaches."""

    def __init__(self, places: Places, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.recovery.replicating", str(folder)]
        with (folder.parent / "pipeline.txt").open("a") as errors:
            self._process = started(
                subprocess.Popen(
                    [*command, json.dumps(asdict(places))],
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    process_group=0,
                )
            )
        self.points = 0
        self._reader = threading.Thread(target=self._count)
        self._reader.start()

    def _count(self) -> None:
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            self.points += 1

    def wait(self, points: int) -> None:
        """Return when it has reached so many points."""

        def done() -> bool:
            assert self._process.poll() is None, "the pipeline has ended by itself"
            return self.points >= points

        wait_until(done)

    def kill(self) -> None:
        """Kill it and its Java at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def main(folder: str, places: str) -> None:
    def reached(point: str) -> None:
        print(point, flush=True)

    settings = SparkSettings(memory="1g", shuffle_partitions=2, brief=True)
    with (
        open_log(f"file:{folder}") as log,
        Run(
            declare(Places(**json.loads(places))), log, settings=settings, crash_point=reached
        ) as running,
    ):
        running.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
