"""What `synced` promises: after a power cut it is there. `written` does not, but keeps order."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.log import Log
from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog
from tests.recovery.lossy import LossyDisk

_TOPICS = ("left", "right")


class _NextBoot(Disk):
    """The disk as it is found after the machine has come up again."""

    def boot(self) -> str:
        return "after the crash"


@dataclass
class _Story:
    """What was committed, in order, and up to where it was promised to stay."""

    commits: list[tuple[str, ...]] = field(default_factory=list)
    synced: int = 0


def _write(log: Log, choose: random.Random) -> _Story:
    """Some commits over two topics, some of them synced, with segments closing on the way."""
    story = _Story()
    for topic in _TOPICS:
        log.create_topic(topic, partitions=2, settings={"segment_bytes": "2KiB"})
    written, synced = log.producer(id="w", acks="written"), log.producer(id="s", acks="synced")
    for number in range(choose.randint(1, 25)):
        promised = choose.random() < 0.3
        topics = tuple(t for t in _TOPICS if choose.random() < 0.7) or _TOPICS[:1]
        with (synced if promised else written).transaction() as transaction:
            for topic in topics:
                for row in range(choose.randint(1, 4)):
                    value = f"{number}:{row}:" + "x" * choose.randint(0, 300)
                    transaction.send(topic, value, key=str(choose.randint(0, 5)))
        story.commits.append(topics)
        if promised:
            story.synced = number + 1
    return story


def _left(log: Log) -> list[tuple[str, ...]]:
    """The commits that are in the log, by the topics they touch; every record is read."""
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


def _one_crash(home: Path, seed: int, broken: str | None) -> tuple[int, int]:
    """Write, crash, come up again and look; returns the commits made and those left."""
    choose = random.Random(seed)
    folder, after = home / "log", home / "after"
    for path in (folder, after):
        shutil.rmtree(path, ignore_errors=True)
    disk = LossyDisk(broken)
    log = FileLog(folder, disk=disk)
    story = _write(log, choose)
    disk.crash(folder, after, choose)
    log.close()
    with FileLog(after, disk=_NextBoot()) as again:
        left = _left(again)
        assert len(left) >= story.synced, f"{story.synced} were synced, {len(left)} are left"
        assert left == story.commits[: len(left)], "half a transaction"
        with again.producer() as producer:
            producer.send("left", f"{len(left)}:0:", key="0")
        assert len(_left(again)) == len(left) + 1
    return len(story.commits), len(left)


def _crashes(home: Path, count: int, broken: str | None = None) -> tuple[int, int, int]:
    """So many crashes; returns how often something was lost that may be, and commits in all."""
    made = left = short = 0
    for seed in range(count):
        all_of_it, there = _one_crash(home, seed, broken)
        made, left, short = made + all_of_it, left + there, short + (there < all_of_it)
    print(f"\n{count} power cuts: {made} commits, {left} left; {short} times fewer than before")
    return made, left, short


def test_what_was_synced_survives_a_power_cut_and_the_rest_is_cut_off_in_order(
    tmp_path: Path,
) -> None:
    made, left, short = _crashes(tmp_path, 60)
    assert short > 5, "nothing was ever lost, so nothing was tested"
    assert left > made / 4


@pytest.mark.slow
def test_what_was_synced_survives_a_thousand_power_cuts(tmp_path: Path) -> None:
    _crashes(tmp_path, 1_000)


@pytest.mark.parametrize("sync", ["segment", "earlier", "folder", "catalog"])
def test_leaving_out_one_kind_of_sync_loses_what_was_promised(tmp_path: Path, sync: str) -> None:
    with pytest.raises((AssertionError, HeadraceError)):
        _crashes(tmp_path, 60, broken=sync)
