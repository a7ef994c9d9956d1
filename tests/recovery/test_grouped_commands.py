"""Commands that share a sync: after a power cut, every command that was answered is there."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import headrace.eventsourcing as es
from headrace.clock import VirtualClock
from headrace.errors import LogError
from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog
from tests.bank import ACCOUNT, Deposit, Open, Withdraw, bank
from tests.recovery.lossy import LossyDisk

BANK = bank()


class NextBoot(Disk):
    """The disk after the machine has rebooted."""

    def boot(self) -> str:
        return "after the crash"


def handled(store: es.Store, number: int) -> es.Handled | es.Refused:
    """Handle one of a few commands, under an id."""
    command = Withdraw(3) if number % 3 == 2 else Deposit(1)
    return store.handle(ACCOUNT, f"a{number % 2}", command, id=f"c{number}")


def test_an_answered_command_survives_a_power_cut_and_is_answered_the_same(tmp_path: Path) -> None:
    for seed in range(6):
        folder, after = tmp_path / "log", tmp_path / "after"
        for path in (folder, after):
            shutil.rmtree(path, ignore_errors=True)
        disk, choose = LossyDisk(), random.Random(seed)
        with FileLog(folder, disk=disk, clock=VirtualClock(0)) as log:
            with BANK.open(log, grouped=True) as store:
                for account in ("a0", "a1"):
                    store.handle(ACCOUNT, account, Open("mia"))
                answers = [handled(store, number) for number in range(choose.randint(1, 8))]
            disk.crash(folder, after, choose)
        with FileLog(after, disk=NextBoot()) as again, BANK.open(again, grouped=True) as store:
            for number, answer in enumerate(answers):
                repeated = handled(store, number)
                assert repeated.repeated
                assert repeated.commit == answer.commit
                assert repeated.state == answer.state


def test_a_command_that_may_not_be_on_disk_is_not_answered(tmp_path: Path) -> None:
    disk = LossyDisk()
    with (
        FileLog(tmp_path / "log", disk=disk, clock=VirtualClock(0)) as log,
        BANK.open(log, grouped=True) as store,
    ):
        store.handle(ACCOUNT, "a0", Open("mia"))
        disk.failing = {"catalog"}
        for _ in range(2):  # sent again, it is known, and still not on disk
            with pytest.raises(LogError):
                handled(store, 0)
        disk.failing = set()
        assert handled(store, 0).repeated
