"""What a capture makes of the transactions of a source, moment by moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.cdc import Capture, Limits
from headrace.cdc.contract import UNCHANGED, Change, Row
from headrace.clock import VirtualClock
from headrace.errors import SourceError, SourceGap
from headrace.log import open_log
from tests.conformance.sources.stage import Crashed, crash_at
from tests.property.scripted_source import TABLES, ScriptedDatabase, ScriptedSource, applied

ITEMS = TABLES["a"]
NOON = 1_800_000_000_000_000


class Whole(Random):
    """No chance: transactions come one at a time, whole, and chunks show all of them."""

    def randrange(self, *_: Any) -> int:
        return 1

    def choice(self, choices: Any) -> Any:
        return choices[-1]

    def random(self) -> float:
        return 1.0


class Blind(Whole):
    """The same, but a chunk shows only transactions that were read before it."""

    def random(self) -> float:
        return 0.0


class Parted(Whole):
    """The same, but transactions come in parts of two changes."""

    def choice(self, choices: Any) -> Any:
        return choices[0]


class Shop:
    """A database in memory, and its capture."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock(NOON)
        self.log = open_log(f"file:{folder}", clock=self.clock)
        self.database = ScriptedDatabase()

    def commit(self, *changes: tuple[str, int, Row | None], full: Row | None = None) -> None:
        """Commit changes, each an operation, a key and the row after it, if there is one.

        `full` is the row after the last change, if not all of it is sent.
        """
        sent = [
            Change(ITEMS, op, () if op == "t" else (key,), None, after)  # type: ignore[arg-type]
            for op, key, after in changes
        ]
        whole = sent if full is None else [*sent[:-1], sent[-1]._replace(after=full)]
        for change in whole:
            applied(self.database.now, change)
        self.database.sent.append(sent)
        self.database.full.append(whole)

    def capture(self, **options: Any) -> None:
        """Capture until it has caught up."""
        options.setdefault("limits", Limits(changes=10, chunk_rows=2))
        source = ScriptedSource(self.database, Whole())
        with Capture(source, self.log, "p", clock=self.clock, **options) as capture:
            while not capture.has_passed(str(len(self.database.full))):
                capture.step(0)

    def changes(self) -> list[tuple[Any, ...]]:
        """The operation of each change, and the rows before and after it."""
        return [
            tuple([c["op"]] + [row and tuple(row.values()) for row in (c["before"], c["after"])])
            for c in self.values()
        ]

    def values(self) -> list[dict[str, Any]]:
        records = [r for batch in self.log.read("p.public.a") for r in batch.records()]
        return [record.value for record in records if record.value is not None]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "log")
    yield made
    made.log.close()


def test_what_the_source_does_not_send_comes_from_the_copy(shop: Shop) -> None:
    shop.capture()
    shop.commit(("c", 1, (1, "x", 1)))
    shop.commit(("u", 1, (1, UNCHANGED, 2)), full=(1, "x", 2))
    shop.commit(("d", 1, None), ("c", 2, (2, UNCHANGED, 3)), full=(2, "x", 3))
    shop.commit(("u", 2, (2, "y", UNCHANGED)), full=(2, "y", 3))
    shop.capture()
    assert shop.changes() == [
        ("c", None, (1, "x", 1)),
        ("u", (1, "x", 1), (1, "x", 2)),
        ("d", (1, "x", 2), None),
        ("c", None, (2, "x", 3)),
        ("u", (2, "x", 3), (2, "y", 3)),
    ]


@pytest.mark.parametrize("limit", [2, 100])
def test_a_truncated_table_is_a_delete_of_each_row(shop: Shop, limit: int) -> None:
    shop.capture()
    shop.commit(*(("c", n, (n, "x", n)) for n in range(5)))
    shop.commit(("c", 5, (5, "x", 5)), ("t", 0, None), ("c", 1, (1, "y", 1)))
    shop.capture(limits=Limits(changes=limit))
    after = shop.changes()[5:]
    assert sorted(op for op, *_ in after) == ["c", "c", *"dddddd"]
    assert after[-1] == ("c", None, (1, "y", 1))
    commits = {record.commit for batch in shop.log.read("p.public.a") for record in batch.records()}
    assert len(commits) == (2 if limit == 100 else 6)


def test_a_delete_and_the_create_that_needs_its_values_are_one_part(shop: Shop) -> None:
    shop.capture()
    shop.commit(*(("c", n, (n, "x", n)) for n in range(3)))
    shop.commit(
        ("u", 1, (1, "z", 1)), ("d", 2, None), ("c", 7, (7, UNCHANGED, 7)), full=(7, "x", 7)
    )  # fmt: skip
    with pytest.raises(Crashed):
        shop.capture(limits=Limits(changes=2), crash_point=crash_at("committed", 4))
    shop.capture(limits=Limits(changes=2))
    assert shop.changes()[3:] == [
        ("u", (1, "x", 1), (1, "z", 1)),
        ("d", (2, "x", 2), None),
        ("c", None, (7, "x", 7)),
    ]


def test_after_a_gap_unchanged_values_come_from_the_snapshot(shop: Shop) -> None:
    shop.commit(("c", 1, (1, "before the gap", 1)))
    shop.capture()
    shop.commit(("u", 1, (1, "in the gap", 1)))
    shop.database.lose()
    shop.commit(("u", 1, (1, UNCHANGED, 2)), full=(1, "in the gap", 2))
    shop.capture(heal=True)
    assert shop.changes()[-1] == ("u", (1, "before the gap", 1), (1, "in the gap", 2))


def test_a_gap_within_a_transaction_leaves_nothing_of_it_behind(shop: Shop) -> None:
    shop.commit(*(("c", n, (n, "x", n)) for n in range(1, 4)))
    shop.capture()
    shop.commit(("u", 1, (1, "y", 1)), ("d", 2, None), ("c", 4, (4, "y", 4)))
    source = ScriptedSource(shop.database, Parted())
    read = source.read

    def read_part(seconds: float) -> Any:
        source.read = gone  # type: ignore[method-assign]
        return read(seconds)

    def gone(seconds: float) -> Any:
        source.read = read  # type: ignore[method-assign]
        shop.database.lose()
        raise SourceGap("the rest is gone")

    source.read = read_part  # type: ignore[method-assign]
    with Capture(source, shop.log, "p", clock=shop.clock, heal=True) as capture:
        capture.step(0)
        assert capture.reached.tx == "1"
        while not capture.has_passed("2"):
            capture.step(0)
        shop.commit(("u", 4, (4, "z", 4)), *(("u", n, (n, "z", n)) for n in (1, 3)))
        while not capture.has_passed("3"):
            capture.step(0)
    assert shop.changes()[3:] == [
        ("u", (1, "x", 1), (1, "y", 1)),
        ("r", None, (4, "y", 4)),
        ("d", (2, "x", 2), None),
        ("u", (4, "y", 4), (4, "z", 4)),
        ("u", (1, "y", 1), (1, "z", 1)),
        ("u", (3, "x", 3), (3, "z", 3)),
    ]


def test_unchanged_values_without_a_copy_stop_the_capture(shop: Shop) -> None:
    shop.commit(("c", 1, (1, "x", 1)))
    shop.database.lose()
    shop.commit(("u", 1, (1, UNCHANGED, 2)), full=(1, "x", 2))
    with pytest.raises(SourceError, match=r'did not send name of the row \{"id":1\}'):
        shop.capture(snapshot="never")


def test_a_chunk_leaves_out_rows_that_the_stream_changes_before_its_place(shop: Shop) -> None:
    shop.commit(("c", 1, (1, "old", 1)), ("c", 2, (2, "old", 2)))
    shop.capture()
    source = ScriptedSource(shop.database, Blind())
    with Capture(source, shop.log, "p", clock=shop.clock) as capture:
        capture.snapshot("public.a")
        shop.commit(("u", 1, (1, "new", 1)), ("d", 2, None))
        while not capture.has_passed("2"):
            capture.step(0)
    assert [op for op, *_ in shop.changes()] == ["c", "c", "u", "d"]


def test_a_page_of_new_rows_leaves_out_those_too(shop: Shop) -> None:
    shop.commit(*(("c", n, (n, "old", n)) for n in range(1, 5)))
    shop.database.lose()
    source = ScriptedSource(shop.database, Blind())
    with Capture(source, shop.log, "p", clock=shop.clock) as capture:
        shop.commit(("u", 2, (2, "new", 2)), ("d", 3, None))
        while not capture.has_passed("2"):
            capture.step(0)
        assert capture._copy.count("p.public.a") == 3
    assert shop.changes() == [
        ("u", None, (2, "new", 2)),
        ("d", (3, None, None), None),
        ("r", None, (1, "old", 1)),
        ("r", None, (4, "old", 4)),
    ]
    assert list((shop.folder / "cdc").glob("*.page"))


def test_rows_that_were_found_the_same_stay_found_after_a_crash(shop: Shop) -> None:
    shop.commit(*(("c", n, (n, "x", n)) for n in range(4)))
    shop.capture()
    source = ScriptedSource(shop.database, Whole())
    limits = Limits(chunk_rows=2)
    crash = crash_at("committed", 2)
    with (
        pytest.raises(Crashed),
        Capture(source, shop.log, "p", limits=limits, crash_point=crash) as capture,
    ):
        capture.snapshot("public.a")
        while True:
            capture.step(0)
    shop.capture()
    assert [op for op, *_ in shop.changes()] == ["c"] * 4


def test_the_time_of_changes_neither_goes_back_nor_is_ahead_of_the_clock(shop: Shop) -> None:
    shop.capture()
    times = [NOON - 5, NOON - 9, NOON + 10**9]
    source = ScriptedSource(shop.database, Whole())
    read = source.read

    def timed(seconds: float) -> Any:
        return [t._replace(at=times[int(t.id)]) if t.id else t for t in read(seconds)]

    source.read = timed  # type: ignore[method-assign]
    for number in range(3):
        shop.commit(("c", number, (number, "x", 0)))
    with Capture(source, shop.log, "p", clock=shop.clock) as capture:
        while not capture.has_passed("3"):
            capture.step(0)
    assert [value["source"]["ts_us"] for value in shop.values()] == [NOON - 5, NOON - 5, NOON]
