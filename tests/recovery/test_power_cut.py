"""After a power cut, `synced` commits are there. `written` ones may be lost, but only the last."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import VirtualClock
from headrace.errors import HeadraceError
from headrace.log import Consumer, Log, check_log
from headrace.log.file import recovery, tails
from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog
from tests.recovery.lossy import LossyDisk

_TOPICS = ("left", "right")


class _NextBoot(Disk):
    """The disk after the machine has rebooted."""

    def boot(self) -> str:
        return "after the crash"


@dataclass
class _Story:
    """The commits in order, and the number of those that must survive.

    `table` has the values of each key in order, by the number of the commit that set it.
    """

    commits: list[tuple[str, ...]] = field(default_factory=list)
    synced: int = 0
    table: dict[bytes, list[tuple[int, bytes]]] = field(default_factory=dict)

    def after(self, commits: int) -> dict[bytes, bytes]:
        """The last value of each key after a number of commits."""
        found = {}
        for key, values in self.table.items():
            there = [value for number, value in values if number < commits]
            if there:
                found[key] = there[-1]
        return found


def _make(log: Log) -> None:
    for topic in _TOPICS:
        log.create_topic(topic, partitions=2, settings={"segment_bytes": "2KiB"})
    log.create_topic("table", settings={"segment_bytes": "1KiB", "cleanup": "compact"})
    facts = {"segment_bytes": "2KiB", "cleanup": "compact", "index": "tags"}
    log.create_topic("facts", schema="id STRING, tags ARRAY<STRING>", key="id", settings=facts)
    log.create_topic("in")
    log.create_topic("out")
    with log.producer() as producer:
        for number in range(40):
            producer.send("in", str(number))


def _write(log: Log, choose: random.Random) -> _Story:
    """Write commits over several topics, some of them synced, with upkeep in between."""
    story = _Story()
    written, synced = log.producer(id="w", acks="written"), log.producer(id="s", acks="synced")
    workers = log.consumer("in", group="workers", commit="manual")
    for number in range(choose.randint(1, 30)):
        promised = choose.random() < 0.2
        producer = synced if promised else written
        topics = tuple(t for t in _TOPICS if choose.random() < 0.7) or _TOPICS[:1]
        with producer.transaction() as transaction:
            for topic in topics:
                for row in range(choose.randint(1, 4)):
                    value = f"{number}:{row}:" + "x" * choose.randint(0, 300)
                    transaction.send(topic, value, key=str(choose.randint(0, 5)))
            tags = [f"commit:{number}", f"choice:{choose.randint(0, 2)}"]
            transaction.send("facts", {"id": f"{number % 7}", "tags": tags})
            if choose.random() < 0.5:
                key, value = str(choose.randint(0, 3)), f"{number}:" + "y" * 200
                transaction.send("table", value, key=key)
                story.table.setdefault(key.encode(), []).append((number, value.encode()))
            if choose.random() < 0.2:
                _work(workers, transaction.send)
                transaction.commit_offsets(workers)
                promised = True  # a commit with offsets is always synced
        story.commits.append(topics)
        if promised:
            story.synced = number + 1
        compacted = choose.choice(["table", "facts"])
        if choose.random() < 0.2 and log.compact(compacted).segments_compacted:
            story.synced = number + 1  # the records that replaced others have to survive
    return story


def _work(workers: Consumer, send: Callable[[str, bytes], object]) -> None:
    for record in workers.poll(max_records=3):
        send("out", record.value)


def _left(log: Log) -> list[tuple[str, ...]]:
    """The commits in the log, by the topics that they touch; reads every record."""
    topics: dict[int, set[str]] = {}
    for topic in _TOPICS:
        ends = Counter[int]()
        for batch in log.read(topic):
            for record in batch.records():
                assert record.offset == ends[record.partition], "offsets are not dense"
                ends[record.partition] += 1
                number, _, tail = record.value.split(b":")
                assert tail == b"x" * len(tail)
                topics.setdefault(int(number), set()).add(topic)
    assert sorted(topics) == list(range(len(topics))), "a commit is missing in between"
    return [tuple(t for t in _TOPICS if t in topics[n]) for n in range(len(topics))]


def _check_table(log: Log, story: _Story, commits: int) -> None:
    found = {r.key: r.value for batch in log.read("table") for r in batch.records()}
    assert found == story.after(commits), "the table is not what the commits left make it"


def _check_marks(log: FileLog, commits: int) -> None:
    flaws = [flaw for flaw in check_log(log.folder, lambda *_: None) if not flaw.harmless]
    assert flaws == [], "the marks are not those of the rows"
    if commits:
        assert len(list(log.find("facts", [[[f"commit:{commits - 1}"]]]))) == 1
    assert not list(log.find("facts", [[[f"commit:{commits}"]]]))


def _check_work(log: Log) -> None:
    done = sorted(int(r.value) for batch in log.read("out") for r in batch.records())
    lags = log.group("workers").lags if "workers" in log.groups() else ()
    at = (lags[0].committed or 0) if lags else 0
    assert done == list(range(at)), f"the group is at {at}, and {done} are done"


def _one_crash(home: Path, seed: int, broken: str | None) -> tuple[int, int]:
    """Write, cut the power, reboot and check; returns the commits made and those left."""
    choose = random.Random(seed)
    folder, after = home / "log", home / "after"
    for path in (folder, after):
        shutil.rmtree(path, ignore_errors=True)
    disk = LossyDisk(broken)
    log = FileLog(folder, disk=disk, clock=VirtualClock(0))
    _make(log)
    story = _write(log, choose)
    disk.crash(folder, after, choose)
    log.close()
    with FileLog(after, disk=_NextBoot()) as again:
        left = _left(again)
        assert len(left) >= story.synced, f"{story.synced} were synced, {len(left)} are left"
        assert left == story.commits[: len(left)], "half a transaction"
        _check_table(again, story, len(left))
        _check_work(again)
        _check_marks(again, len(left))
        with again.producer() as producer:
            for topic in ("left", "right"):
                for partition in (0, 1):
                    producer.send(topic, f"{len(left)}:0:", partition=partition)
        assert len(_left(again)) == len(left) + 1, "the log takes no more"
        again.upkeep()
    return len(story.commits), len(left)


def _crashes(
    home: Path, count: int, broken: str | None = None, first: int = 0
) -> tuple[int, int, int]:
    """Repeat power cuts; returns the commits made, those left, and how often some were lost.

    The last bytes of segments are copied into the catalog always, sometimes or never.
    """
    made = left = short = 0
    for seed in range(first, first + count):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tails, "TAIL_BYTES", (0, 600, 1 << 14)[seed % 3])
            patch.setattr(tails, "TAILS", 1 + seed % 7)
            all_of_it, there = _one_crash(home, seed, broken)
        made, left, short = made + all_of_it, left + there, short + (there < all_of_it)
    print(f"\n{count} power cuts: {made} commits, {left} left; {short} times fewer than before")
    return made, left, short


class _Recoveries:
    """Counts how often opening a log rolled commits back."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.times = 0

        def recover(*arguments: Any) -> int:
            lost = recovery.recover(*arguments)
            self.times += lost > 0
            return lost

        patch.setattr("headrace.log.file.log.recover", recover)


@pytest.mark.parametrize("first", [0, 40])
def test_what_was_synced_survives_a_power_cut_and_the_rest_is_cut_off_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    recoveries = _Recoveries(monkeypatch)
    made, left, short = _crashes(tmp_path, 40, first=first)
    print(f"commits were taken back {recoveries.times} times")
    assert short > 5, "nothing was ever lost, so nothing was tested"
    assert recoveries.times > 5, "the catalog never spoke of lost bytes"
    assert left > made / 4


@pytest.mark.slow
def test_what_was_synced_survives_a_thousand_power_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recoveries = _Recoveries(monkeypatch)
    _crashes(tmp_path, 1_000)
    print(f"commits were taken back {recoveries.times} times")


def test_without_the_copies_in_the_catalog_synced_bytes_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "write_tails", lambda *_: None)
    with pytest.raises((AssertionError, HeadraceError)):
        _crashes(tmp_path, 80)


@pytest.mark.parametrize("sync", ["segment", "earlier", "folder", "catalog"])
def test_leaving_out_one_kind_of_sync_loses_what_was_promised(tmp_path: Path, sync: str) -> None:
    with pytest.raises((AssertionError, HeadraceError)):
        _crashes(tmp_path, 80, broken=sync)


def test_without_recovery_the_catalog_speaks_of_lost_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log.file.log.recover", lambda *_: 0)
    with pytest.raises((AssertionError, HeadraceError)):
        _crashes(tmp_path, 80)
