"""The processes of the soak, each of which may be killed or stopped at any moment.

A producer notes each batch that the log has acknowledged in `NAME.acked`. A worker that the log has
sent away, because another took its place or the log was busy, ends with GONE. What a worker has
to say is in `NAME.said`.
"""

from __future__ import annotations

import os
import random
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from headrace.application.rebuild.rebuild import Rebuild
from headrace.application.run import Run
from headrace.clock import SECOND, SystemClock
from headrace.errors import AlreadyRunning, Fenced, Retryable, UnknownView
from headrace.log import Consumer, Log, Producer, open_log
from headrace.log.roles import Acks
from headrace.runtime.session import SparkSettings
from headrace.schema.ddl import parse_schema
from tests.soak import stage

GONE = 7
SPARK = SparkSettings(memory="1g", shuffle_partitions=2, brief=True)


def begin(folder: Path, role: str, name: str, pause: float) -> None:
    """Do the work of a role, in a process of its own, until it ends or is killed."""
    os.setpgid(0, 0)
    said = os.open(folder / f"{name}.said", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(said, stream)
    random.seed()
    try:
        with open_log(log_of(folder)) as log:
            work(log, folder, role, name, pause)
    except (Fenced, Retryable, AlreadyRunning, UnknownView) as error:
        print(repr(error), flush=True)
        sys.exit(GONE)


def work(log: Log, folder: Path, role: str, name: str, pause: float) -> None:
    app, _ = stage.declare()
    match role:
        case "producer":
            produce(log, folder, name, pause)
        case "relay":
            relay(log, pause)
        case "upkeep":
            keep_up(log, pause)
        case "pipeline":
            with Run(app, log, settings=SPARK) as running:
                running.wait()
        case "rebuild":
            with Rebuild(app, stage.VIEW, log, settings=SPARK) as build:
                build.build()
                build.switch()
        case _:
            raise ValueError(role)


def log_of(folder: Path) -> str:
    return f"file:{folder / 'log'}"


def produce(log: Log, folder: Path, name: str, pause: float) -> None:
    """Go on where the last one of that name ended, for ever."""
    clock = SystemClock()
    acked = os.open(folder / f"{name}.acked", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    acks: Acks = random.choice(("written", "synced"))
    # The linger must outlast any stop of this process: what is sent between two flushes has to be
    # one commit, and so one number.
    producer = log.producer(id=name, acks=acks, linger=timedelta(days=1))
    while True:
        number = producer.next_sequence
        write(producer, name, number)
        os.write(acked, b"%d\n" % number)
        clock.sleep(int(random.uniform(0, 2 * pause) * SECOND))


def write(producer: Producer, name: str, number: int) -> None:
    """Commit one batch."""
    rows = stage.orders(name, number)
    match stage.MODES[name]:
        case "append":
            table = pa.Table.from_pylist(rows, parse_schema(stage.SCHEMA))
            producer.append(stage.ORDERS, table, sequence=number)
        case "send":
            for row in rows:
                producer.send(stage.ORDERS, row)
            producer.flush()
        case _:
            with producer.transaction() as transaction:
                for row in rows:
                    transaction.send(stage.ORDERS, row)
                key, value = stage.rate(name, number)
                transaction.send(stage.RATES, value, key=key)
                transaction.append(stage.NOISE, stage.noise(name, number))


def relay(log: Log, pause: float) -> None:
    """Copy the ids of orders, exactly once, for ever."""
    producer = log.producer(acks="written")
    with log.consumer(
        stage.ORDERS, group=stage.GROUP, commit="manual", session=stage.SESSION
    ) as consumer:
        while True:
            relay_some(producer, consumer)
            SystemClock().sleep(int(pause * SECOND))


def relay_some(producer: Producer, consumer: Consumer) -> int:
    """Copy what a poll gives, and move the group's offsets with it."""
    records = consumer.poll(timedelta(milliseconds=200), max_records=50)
    with producer.transaction() as transaction:
        for record in records:
            transaction.send(stage.RELAYED, record.value["id"], key=record.value["shop"])
        transaction.commit_offsets(consumer)
    return len(records)


def keep_up(log: Log, pause: float) -> None:
    """Compact, cut and tier, for ever."""
    while True:
        log.compact(stage.RATES)
        log.upkeep()
        SystemClock().sleep(int(10 * pause * SECOND))
