"""A pipeline from topic to topic on Kafka, in a separate process to be killed.

    python -m tests.recovery.relay SERVERS TAG REACHED POINT NTH

Every point that is reached is written to the file REACHED. POINT `-` kills nothing.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.application.run import Run
from headrace.log import Log
from headrace.pipeline.stream import Source
from headrace.plan.source_options import BatchLimits
from headrace.runtime.session import SparkSettings
from headrace.testing import kill_at

AT = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 60
"""Rows sent between two kills."""


def declare(tag: str) -> tuple[hr.App, Source, str]:
    """The application, its input, and its output topic."""
    app = hr.App(f"relay-{tag}")
    source = app.topic(
        f"in-{tag}", schema="id bigint, word string, at timestamp", event_time="at", partitions=3
    )
    odd = hr.derive(hr.filter(source, "id % 3 != 0"), word="upper(word)")
    app.publish(f"out-{tag}", odd)
    return app, source, f"out-{tag}"


def row(number: int) -> dict[str, Any]:
    return {"id": number, "word": f"word {number}", "at": AT}


def found(log: Log, topic: str) -> Counter[tuple[int, str]]:
    """The rows that a reader of committed records finds."""
    return Counter(
        (record.value["id"], record.value["word"])
        for batch in log.read(topic)
        for record in batch.records()
    )


def expected(numbers: Iterable[int]) -> Counter[tuple[int, str]]:
    return Counter((number, f"WORD {number}") for number in numbers if number % 3)


def main(servers: str, tag: str, reached: str, point: str, nth: str) -> None:
    app, _, _ = declare(tag)
    kill = kill_at(point, int(nth)) if point != "-" else None
    with Path(reached).open("a") as file:

        def crash_point(name: str) -> None:
            file.write(name + "\n")
            file.flush()
            if kill is not None:
                kill(name)

        with Run(
            app,
            f"kafka://{servers}?timeout=20s",
            until_caught_up=True,
            settings=SparkSettings(shuffle_partitions=2, brief=True),
            batch_limits=BatchLimits(max_rows=ROWS // 3),
            crash_point=crash_point,
        ) as running:
            running.wait()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
