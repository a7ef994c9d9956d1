"""Background tasks: their failures, and the shutdown of all of them."""

from __future__ import annotations

import pytest

from headrace.clock import VirtualClock
from headrace.errors import NotALog, PipelineFailed
from headrace.runtime.task import Task, wait_for


def failing(seconds: float) -> bool:
    raise PipelineFailed("There is no log")


def test_what_ends_all_tasks_is_said_by_the_one_that_fails_first() -> None:
    def check() -> None:
        raise NotALog("The folder was removed")

    task = Task(lambda: None, failing, lambda: 0, started=True)
    with pytest.raises(NotALog, match="removed"):
        wait_for([task], VirtualClock(), 1, check)


def test_a_failure_of_a_task_is_raised_if_nothing_ends_all() -> None:
    task = Task(lambda: None, failing, lambda: 0, started=True)
    with pytest.raises(PipelineFailed, match="no log"):
        wait_for([task], VirtualClock(), 1)
