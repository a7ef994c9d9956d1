"""Processes on one machine whose clocks disagree."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from headrace.log.file.log import FileLog
from tests.integration.processes import answer, python

HOUR = 3600 * 1_000_000

JOIN = """
import json, os, sys
from datetime import timedelta
from pathlib import Path
from headrace.clock import SystemClock
from headrace.log.file.log import FileLog

class Shifted(SystemClock):
    def now(self):
        return super().now() + int(sys.argv[2])

log = FileLog(Path(sys.argv[1]), clock=Shifted())
consumer = log.consumer("t", group="g", session=timedelta(microseconds=int(sys.argv[3])))
consumer.poll()
print(json.dumps([len(log.group("g").members), len(consumer.assignment)]), flush=True)
os._exit(0)  # without a word to the group
"""


def test_a_process_whose_clock_is_ahead_takes_nothing_from_the_living(tmp_path: Path) -> None:
    with FileLog(tmp_path / "log") as log:
        log.create_topic("t", partitions=2)
        session = timedelta(minutes=30)
        with log.consumer("t", group="g", session=session) as living:
            assert answer(python(JOIN, log.folder, HOUR, HOUR)) == [2, 0]
            assert len(living.assignment) == 2


def test_a_process_that_died_with_its_clock_ahead_holds_nothing_for_that_long(
    tmp_path: Path,
) -> None:
    with FileLog(tmp_path / "log") as log:
        log.create_topic("t", partitions=2)
        # A session of a millisecond expires before its process ends.
        assert answer(python(JOIN, log.folder, HOUR, 1_000))[1] == 2
        with log.consumer("t", group="g") as heir:
            assert len(heir.assignment) == 2
