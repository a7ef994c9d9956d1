"""Published facts about windows, each with its source.

Times are milliseconds since 1970. A fact is about some moments: their windows, and the moments
that are in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import headrace as hr

Span = tuple[int, int]

_BEAM = "apache/beam: sdks/java/core/src/test/java/org/apache/beam/sdk/transforms/windowing/"
_FLINK = (
    "apache/flink: flink-streaming-java/src/test/java/org/apache/flink/streaming/runtime/operators/"
    "windowing/"
)


@dataclass(frozen=True)
class Fact:
    """The windows of some moments, and where it was published."""

    source: str
    window: hr.Window | hr.Sliding | hr.Session
    windows: dict[Span, set[int]]
    order: tuple[int, ...] = ()
    """Their order of arrival, if not by time."""

    @property
    def moments(self) -> tuple[int, ...]:
        return self.order or tuple(sorted(set().union(*self.windows.values())))


def ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def _hops(moment: int, first: int) -> dict[Span, set[int]]:
    """Five windows of 5 s, a second apart."""
    return {(first + n * 1000, first + n * 1000 + 5000): {moment} for n in range(5)}


_FIXED, _SLIDING, _SESSIONS = (
    f"{_BEAM}{name}Test.java" for name in ("FixedWindows", "SlidingWindows", "Sessions")
)
_TUMBLING, _HOPPING = (
    f"{_FLINK}{name}EventTimeWindowsTest.java" for name in ("Tumbling", "Sliding")
)

FACTS = {
    "beam fixed": Fact(
        f"{_FIXED} testSimpleFixedWindow",
        hr.tumbling(ms(10)),
        {(0, 10): {1, 2, 5, 9}, (10, 20): {10, 11}, (100, 110): {100}},
    ),
    "beam fixed, offset": Fact(
        f"{_FIXED} testFixedOffsetWindow",
        hr.tumbling(ms(10), offset=ms(5)),
        {(-5, 5): {1, 2}, (5, 15): {5, 9, 10, 11}, (95, 105): {100}},
    ),
    "beam fixed, seconds": Fact(
        f"{_FIXED} testTimeUnit",
        hr.tumbling(ms(10_000), offset=ms(5_000)),
        {(-5000, 5000): {1, 2, 1000}, (5000, 15000): {5000, 5001, 10000}},
    ),
    "beam sliding": Fact(
        f"{_SLIDING} testSimple",
        hr.hopping(ms(10), ms(5)),
        {(-5, 5): {1, 2}, (0, 10): {1, 2, 5, 9}, (5, 15): {5, 9, 10, 11}, (10, 20): {10, 11}},
    ),
    "beam sliding, uneven": Fact(
        f"{_SLIDING} testSlightlyOverlapping",
        hr.hopping(ms(7), ms(5)),
        {(-5, 2): {1}, (0, 7): {1, 2, 5}, (5, 12): {5, 9, 10, 11}, (10, 17): {10, 11}},
    ),
    "beam sliding, offset": Fact(
        f"{_SLIDING} testOffset",
        hr.hopping(ms(10), ms(5), offset=ms(2)),
        {(-8, 2): {1}, (-3, 7): {1, 2, 5}, (2, 12): {2, 5, 9, 10, 11}, (7, 17): {9, 10, 11}},
    ),
    "beam sliding, seconds": Fact(
        f"{_SLIDING} testTimeUnit",
        hr.hopping(ms(10_000), ms(5_000)),
        {
            (-5000, 5000): {1, 2, 1000},
            (0, 10000): {1, 2, 1000, 5000, 5001},
            (5000, 15000): {5000, 5001, 10000},
            (10000, 20000): {10000},
        },
    ),
    "beam sessions that touch": Fact(
        f"{_SESSIONS} testSimple",
        hr.session(ms(10)),
        {(0, 10): {0}, (10, 20): {10}, (101, 111): {101}},
    ),
    "beam sessions": Fact(
        f"{_SESSIONS} testConsecutive",
        hr.session(ms(10)),
        {(1, 19): {1, 2, 5, 9}, (100, 111): {100, 101}},
    ),
    "beam sessions that merge": Fact(
        f"{_SESSIONS} testMerging",
        hr.session(ms(10)),
        {(1, 40): {1, 10, 15, 22, 30}, (95, 111): {95, 100, 101}},
        (1, 15, 30, 100, 101, 95, 22, 10),
    ),
    "beam sessions, seconds": Fact(
        f"{_SESSIONS} testTimeUnit",
        hr.session(ms(1_000)),
        {(1, 2000): {1, 2, 1000}, (5000, 6001): {5000, 5001}, (10000, 11000): {10000}},
    ),
    "flink tumbling": Fact(
        f"{_TUMBLING} testWindowAssignment",
        hr.tumbling(ms(5000)),
        {(0, 5000): {0, 4999}, (5000, 10000): {5000}},
    ),
    "flink tumbling, offset": Fact(
        f"{_TUMBLING} testWindowAssignmentWithGlobalOffset",
        hr.tumbling(ms(5000), offset=ms(100)),
        {(100, 5100): {100, 5099}, (5100, 10100): {5100}},
    ),
    "flink tumbling, the other way": Fact(
        f"{_TUMBLING} testWindowAssignmentWithNegativeGlobalOffset",
        hr.tumbling(ms(5000), offset=ms(4900)),
        {(-100, 4900): {0, 4899}, (4900, 9900): {4900}},
    ),
    "flink tumbling, seconds": Fact(
        f"{_TUMBLING} testTimeUnits",
        hr.tumbling(ms(5000), offset=ms(1000)),
        {(1000, 6000): {1000, 5999}, (6000, 11000): {6000}},
    ),
    **{
        f"flink sliding, {test}, {moment}": Fact(
            f"{_HOPPING} {test}",
            hr.hopping(ms(5000), ms(1000), offset=ms(offset)),
            _hops(moment, first),
        )
        for test, offset, moment, first in (
            ("testWindowAssignment", 0, 0, -4000),
            ("testWindowAssignment", 0, 4999, 0),
            ("testWindowAssignment", 0, 5000, 1000),
            ("testWindowAssignmentWithOffset", 100, 100, -3900),
            ("testWindowAssignmentWithOffset", 100, 5099, 100),
            ("testWindowAssignmentWithOffset", 100, 5100, 1100),
            ("testWindowAssignmentWithNegativeOffset", 900, 0, -4100),
            ("testWindowAssignmentWithNegativeOffset", 900, 4899, -100),
            ("testTimeUnits", 500, 100, -4500),
            ("testTimeUnits", 500, 5499, 500),
        )
    },
}

OVER = (
    "apache/flink: flink-table/flink-table-planner/src/test/scala/org/apache/flink/table/planner/"
    "runtime/harness/OverAggregateHarnessTest.scala testRowTimeBoundedRangeOver"
)
"""The smallest and the largest value of the last four seconds, at each row."""

OVER_ROWS = [
    (2, "aaa", 1), (3, "bbb", 10), (4001, "aaa", 2), (4002, "aaa", 3), (4003, "aaa", 4),
    (4801, "bbb", 25), (6501, "aaa", 5), (6501, "aaa", 6), (6501, "bbb", 30), (7001, "aaa", 7),
    (8001, "aaa", 8), (12001, "aaa", 9), (12001, "aaa", 10), (12001, "bbb", 40),
]  # fmt: skip

OVER_RESULTS = {
    (2, "aaa"): (1, 1), (3, "bbb"): (10, 10), (4001, "aaa"): (1, 2), (4002, "aaa"): (1, 3),
    (4003, "aaa"): (2, 4), (4801, "bbb"): (25, 25), (6501, "aaa"): (2, 6), (6501, "bbb"): (25, 30),
    (7001, "aaa"): (2, 7), (8001, "aaa"): (2, 8), (12001, "aaa"): (8, 10), (12001, "bbb"): (40, 40),
}  # fmt: skip
