"""Mistakes are found where they are declared, and no error is one of Python's own."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from pyspark import SparkContext

from headrace import errors
from headrace.runtime.session import _ended_with_us
from tests.unit.mistakes import Mistake, make, mistakes


@pytest.mark.parametrize("mistake", mistakes(), ids=lambda mistake: mistake.code)
def test_a_mistake_is_refused_at_its_line(mistake: Mistake) -> None:
    with pytest.raises(errors.UserError) as refused:
        make(mistake.code)
    assert type(refused.value).__name__ == mistake.error
    assert str(refused.value) == mistake.text
    assert mistake.text.endswith(("See app.py:1", "See declared.py:3"))


def test_the_table_has_forty_mistakes_and_each_once() -> None:
    codes = [mistake.code for mistake in mistakes()]
    assert len(codes) >= 40
    assert len(set(codes)) == len(codes)


def test_an_interrupted_start_of_spark_leaves_no_process() -> None:
    with pytest.raises(KeyboardInterrupt), _ended_with_us():
        child = subprocess.Popen(["bash", "-c", "exec -a spark-submit sleep 600"])
        # The command line of bash names it, too.
        while not Path(f"/proc/{child.pid}/cmdline").read_bytes().startswith(b"spark-submit"):
            pass
        raise KeyboardInterrupt
    assert child.wait() == -signal.SIGKILL


def test_no_mistake_starts_spark() -> None:
    before = SparkContext._active_spark_context
    for mistake in mistakes():
        with pytest.raises(errors.UserError):
            make(mistake.code)
    assert SparkContext._active_spark_context is before
