"""Hooks for objects that must be repaired in a forked child process."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_renewals: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def in_child(owner: T, renew: Callable[[T], None]) -> None:
    """Call `renew(owner)` in every child that this process forks while `owner` lives.

    A child has one thread. A lock that another thread held at the fork is never released there,
    and a thread pool has no threads, so their owner creates new ones.
    """
    _renewals[owner] = renew


def at_exit(function: Callable[..., object], *arguments: object) -> None:
    """Call a function when this process exits, but not when a forked child exits."""
    process = os.getpid()
    atexit.register(lambda: os.getpid() == process and function(*arguments))


def _renew() -> None:
    for owner, renew in list(_renewals.items()):
        renew(owner)


os.register_at_fork(after_in_child=_renew)
