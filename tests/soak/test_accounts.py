"""The soak's checks detect what they are meant to detect."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.clock import to_datetime
from headrace.log import Log, open_log
from headrace.log.state import Receipt
from headrace.operators.window.meaning import meaning
from headrace.oracle.events import events_of
from tests.soak import stage, workers
from tests.soak.accounts import Accounts, recount

BATCHES = 30
LONG = timedelta(minutes=1)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log with some batches of every producer, all acknowledged, none relayed."""
    with open_log(workers.log_of(tmp_path)) as made:
        stage.make_log(made, tmp_path)
        for name in stage.MODES:
            with made.producer(id=name, linger=LONG) as producer:
                for number in range(BATCHES):
                    workers.write(producer, name, number)
            note(tmp_path, name, *range(BATCHES))
        yield made


def note(folder: Path, name: str, *numbers: int) -> None:
    with (folder / f"{name}.acked").open("a") as file:
        file.writelines(f"{number}\n" for number in numbers)


def relay(log: Log, *ids: str) -> None:
    with log.producer() as producer:
        for id in ids:
            producer.send(stage.RELAYED, id)


def check(log: Log, folder: Path, match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        Accounts(folder).check(log)


def test_what_is_right_is_right_before_and_after_upkeep(log: Log, tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts.check(log)
    relay(log, "banker/0/0", "sender/3/1")
    log.compact(stage.RATES)
    log.upkeep()
    accounts.check(log)
    assert accounts.counted["acknowledged"] == BATCHES * len(stage.MODES)


@pytest.mark.parametrize("name", stage.MODES)
def test_a_batch_that_was_acknowledged_and_is_not_there_is_noticed(
    log: Log, tmp_path: Path, name: str
) -> None:
    note(tmp_path, name, BATCHES)
    check(log, tmp_path, "not in the log")


def test_a_batch_that_is_there_twice_is_noticed(log: Log, tmp_path: Path) -> None:
    with log.producer(linger=LONG) as producer:
        workers.write(producer, "sender", 3)
    check(log, tmp_path, "torn or doubled")


def test_a_batch_that_is_left_out_is_noticed(log: Log, tmp_path: Path) -> None:
    with log.producer(linger=LONG) as producer:
        workers.write(producer, "sender", BATCHES + 1)
    check(log, tmp_path, "a batch is missing")


def test_half_a_batch_is_noticed(log: Log, tmp_path: Path) -> None:
    with log.producer() as producer:
        producer.send(stage.ORDERS, stage.orders("sender", BATCHES)[0])
    check(log, tmp_path, "torn or doubled")


def test_a_batch_in_two_commits_is_noticed(log: Log, tmp_path: Path) -> None:
    with log.producer() as producer:
        made: list[Receipt] = []
        for row in stage.orders("sender", BATCHES):
            made.append(producer.send(stage.ORDERS, row).wait())
    assert len({receipt.commit for receipt in made}) > 1
    check(log, tmp_path, "several commits")


def test_what_is_relayed_twice_or_was_never_there_is_noticed(log: Log, tmp_path: Path) -> None:
    relay(log, "sender/0/0", "sender/0/1", "sender/0/0")
    check(log, tmp_path, "relayed twice")
    log.delete_topic(stage.RELAYED)
    log.create_topic(stage.RELAYED)
    relay(log, "sender/99/0")
    check(log, tmp_path, "no order")


def test_an_offset_with_another_value_than_before_is_noticed(log: Log, tmp_path: Path) -> None:
    relay(log, "sender/0/0")
    accounts = Accounts(tmp_path)
    accounts.check(log)
    log.delete_topic(stage.RELAYED)
    log.create_topic(stage.RELAYED)
    relay(log, "sender/0/1")
    with pytest.raises(AssertionError, match="has changed"):
        accounts.check(log)


def test_a_gap_in_what_retention_left_is_noticed(log: Log, tmp_path: Path) -> None:
    with log.producer() as producer:
        producer.append(stage.NOISE, stage.noise("banker", BATCHES + 5))
    check(log, tmp_path, "a gap")


def test_a_key_that_compaction_lost_is_noticed(log: Log, tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts.check(log)
    log.delete_topic(stage.RATES)
    log.create_topic(stage.RATES, partitions=3)
    with pytest.raises(AssertionError, match="keys are gone"):
        accounts.check(log)


def test_the_recount_is_the_oracles(log: Log, tmp_path: Path) -> None:
    _, sales = stage.declare()
    orders = Accounts(tmp_path).read(log, stage.ORDERS)
    found = meaning(sales, events_of(log.topic(stage.ORDERS).topic, orders))
    panes = sorted(
        (shop, to_datetime(start).strftime("%Y-%m-%d %H:%M:%S"), *map(str, pane.result(
            sales.aggregates).values()))
        for (shop, start), pane in found.panes.items()
    )  # fmt: skip
    assert panes == [(shop, start, str(n), total) for shop, start, n, total in recount(orders)]
    assert found.late
    assert found.dead
