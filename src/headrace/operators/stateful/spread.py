"""Bucket numbers that Spark spreads evenly over its tasks.

Spark assigns a bucket to a task by a hash of its number. With consecutive numbers, some tasks would
get twice as many as others. The numbers are in the state, so they do not depend on the tasks.
"""

from __future__ import annotations

import functools
import itertools

_SEED = 42
_BITS = 0xFFFFFFFF


@functools.cache
def labels(count: int) -> tuple[int, ...]:
    """The numbers of `count` buckets, whose hashes modulo `count` are all different.

    Any number of tasks that divides `count` gets equally many.
    """
    found: dict[int, int] = {}
    for number in itertools.count():
        if len(found) == count:
            return tuple(found[rest] for rest in range(count))
        found.setdefault(spark_hash(number) % count, number)
    raise AssertionError("numbers do not end")


def spark_hash(number: int) -> int:
    """Spark's hash of an `int`: Murmur3 with the seed 42."""
    mixed = _rotated(number * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS
    found = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _BITS) ^ 4
    found = (found ^ found >> 16) * 0x85EBCA6B & _BITS
    found = (found ^ found >> 13) * 0xC2B2AE35 & _BITS
    found ^= found >> 16
    return found - (1 << 32) if found >> 31 else found


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & _BITS
