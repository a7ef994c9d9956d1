"""Producing records one by one and in batches: lingering, acknowledgements and append times."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from decimal import (
    ROUND_UP,
    Context,
    Decimal,
    FloatOperation,
    Inexact,
    InvalidOperation,
    Rounded,
    Subnormal,
    localcontext,
)
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import (
    InvalidRecord,
    InvalidSetting,
    MisusedHandle,
    UnknownPartition,
    WrongType,
)
from headrace.log import Capability, Log
from headrace.log.roles import Acks
from tests.conformance.backends import START, Backend
from tests.conformance.stage import LONG, Stage, dense, needs, offsets, read, send, values

TYPED = Capability.TYPED_TOPICS


def test_a_raw_value_is_bytes_text_or_json(log: Log) -> None:
    log.create_topic("clicks")
    send(log, "clicks", b"\x00\xff", "é", {"n": 1}, [1, None], 7, b"", None)
    assert values(log, "clicks") == [
        b"\x00\xff", "é".encode(), b'{"n":1}', b"[1,null]", b"7", b"", None,
    ]  # fmt: skip


def test_headers_are_kept_in_order_with_repeats_and_nulls(log: Log) -> None:
    log.create_topic("clicks")
    headers = [("trace", b"1"), ("a", None), ("trace", b"\xff"), ("empty", b"")]
    send(log, "clicks", b"x", headers=headers)
    send(log, "clicks", b"y")
    assert [record.headers for record in read(log, "clicks")] == [tuple(headers), ()]


@pytest.mark.parametrize("headers", [[("n", 5)], [(b"n", b"v")], [("n",)], ["n"], {"n": b"v"}])
def test_headers_are_pairs_of_a_name_and_bytes(log: Log, headers: Any) -> None:
    log.create_topic("clicks")
    with log.producer(linger=LONG) as producer:
        with pytest.raises(InvalidRecord, match="headers"):
            producer.send("clicks", b"bad", headers=headers)
        producer.send("clicks", b"good")
    assert values(log, "clicks") == [b"good"]


def test_headers_of_a_typed_topic_are_kept_or_refused_but_never_dropped(log: Log) -> None:
    with needs(log, TYPED):
        log.create_topic("orders", schema="id string")
        try:
            send(log, "orders", {"id": "a"}, headers=[("trace", b"1")])
        except InvalidRecord:
            assert read(log, "orders") == []
        else:
            assert read(log, "orders")[0].headers == (("trace", b"1"),)


def test_a_row_of_every_type_comes_back_as_it_went_in(log: Log) -> None:
    row = {
        "text": "é",
        "tiny": -128,
        "whole": 2**31 - 1,
        "long": -(2**63),
        "half": 0.5,
        "real": 0.1,
        "flag": True,
        "at": datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
        "local": datetime(2026, 1, 31, 12),
        "day": date(2026, 1, 31),
        "money": Decimal("12.30"),
        "raw": b"\x00\xff",
        "list": ["a", None],
        "map": [("k", 1)],
        "place": {"lat": 1.5, "lon": None},
    }
    with needs(log, TYPED):
        log.create_topic(
            "orders",
            schema="text string, tiny tinyint, whole int, long bigint, half float, real double, "
            "flag boolean, at timestamp, local timestamp_ntz, day date, money decimal(10,2), "
            "raw binary, list array<string>, map map<string,int>, "
            "place struct<lat: double, lon: double>",
        )
        send(log, "orders", {**row, "map": {"k": 1}}, {})
        assert values(log, "orders") == [row, dict.fromkeys(row)]


@pytest.mark.parametrize(
    "context",
    [
        Context(),
        Context(prec=5),
        Context(prec=5, traps=[Inexact, Rounded, Subnormal, FloatOperation]),
        Context(traps=[], Emax=3, Emin=-3, capitals=0, rounding=ROUND_UP),
    ],
)
def test_decimals_of_38_digits_are_kept_in_every_decimal_context(
    log: Log, context: Context
) -> None:
    digits = "9" * 38
    rows = [
        {"whole": Decimal(digits), "half": Decimal(f"-{digits[:19]}.{digits[19:]}")},
        {"whole": digits, "half": f"{digits[:19]}.{digits[19:]}"},
        {"whole": int(digits), "half": 0.5},
        {"whole": Decimal("1E+37"), "half": Decimal("0E+50")},
    ]
    with needs(log, Capability.TYPED_TOPICS), localcontext(context):
        log.create_topic("sums", schema="whole decimal(38,0), half decimal(38,19)")
        send(log, "sums", *rows)
        assert [(row["whole"], row["half"]) for row in values(log, "sums")] == [
            (Decimal(digits), Decimal(f"-{digits[:19]}.{digits[19:]}")),
            (Decimal(digits), Decimal(f"{digits[:19]}.{digits[19:]}")),
            (Decimal(digits), Decimal("0.5")),
            (Decimal("1E+37"), Decimal(0)),
        ]


@pytest.mark.parametrize("traps", [[], [InvalidOperation]])
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("1e38", "more than 38 digits"),
        ("1e999999999999999999", "more than 38 digits"),
        ("0.1", "more than 0 decimals"),
        (f"1e-{10**17}", "more than 0 decimals"),
        ("NaN", "finite"),
        (Decimal("sNaN"), "finite"),
        (float("inf"), "finite"),
        ("1e9999999999999999999999", "not a number"),
        ("many", "not a number"),
    ],
)
def test_what_no_decimal_of_the_column_is_is_refused_in_every_decimal_context(
    log: Log, value: Any, why: str, traps: list[Any]
) -> None:
    with needs(log, Capability.TYPED_TOPICS), localcontext(Context(traps=traps)):
        log.create_topic("sums", schema="whole decimal(38,0)")
        with pytest.raises(WrongType, match=why):
            send(log, "sums", {"whole": value})


def test_text_stands_for_times_dates_and_decimals_in_a_row(log: Log) -> None:
    with needs(log, TYPED):
        log.create_topic("orders", schema="at timestamp, day date, money decimal(10,2)")
        send(log, "orders", {"at": "2026-01-31T13:00:00+01:00", "day": "2026-01-31", "money": "1"})
        assert values(log, "orders") == [
            {
                "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
                "day": date(2026, 1, 31),
                "money": Decimal("1.00"),
            }
        ]


def test_a_delivery_knows_where_its_record_went(log: Log) -> None:
    log.create_topic("clicks", partitions=2)
    with log.producer(linger=LONG) as producer:
        first = producer.send("clicks", b"a", partition=1)
        second = producer.send("clicks", b"b", partition=1)
        assert not first.done
        receipt = first.wait()
        assert first.done
        assert second.done
    assert receipt.records >= 2
    assert [(ack.topic, ack.partition) for ack in receipt.acks] == [("clicks", 1)]
    assert receipt.acks[0].first == read(log, "clicks")[0].offset


def test_nothing_is_in_the_log_before_its_batch_is_committed(log: Log) -> None:
    log.create_topic("clicks")
    with log.producer(linger=LONG) as producer:
        producer.send("clicks", b"a")
        assert values(log, "clicks") == []
        producer.flush()
        assert values(log, "clicks") == [b"a"]
        producer.send("clicks", b"b")
    assert values(log, "clicks") == [b"a", b"b"], "closing commits what was sent"


def test_a_batch_is_committed_when_it_is_full(log: Log) -> None:
    log.create_topic("clicks")
    with log.producer(linger=LONG, batch_bytes=100) as producer:
        first = producer.send("clicks", b"a" * 60)
        assert not first.done
        second = producer.send("clicks", b"b" * 60)
        assert first.done
        assert second.done
        assert not producer.send("clicks", b"c" * 60).done
        assert len(values(log, "clicks")) == 2


def test_a_batch_is_committed_when_it_has_lingered(backend: Backend) -> None:
    # In real time, because the producer's own thread has to do it.
    log = backend.open_on_system_clock()
    log.create_topic("clicks")
    with log.producer(linger=timedelta(milliseconds=5)) as producer:
        for value in (b"a", b"b"):
            delivery = producer.send("clicks", value)
            waited = threading.Event()
            for _ in range(1000):
                if delivery.done:
                    break
                waited.wait(0.01)
            assert delivery.done
    assert values(log, "clicks") == [b"a", b"b"]


def test_what_is_sent_together_over_topics_is_one_commit(log: Log) -> None:
    log.create_topic("a", partitions=2)
    log.create_topic("b")
    with needs(log, Capability.NUMBERED_APPENDS):
        before = log.head()
        with log.producer(linger=LONG) as producer:
            for partition in (0, 1):
                producer.send("a", b"x", partition=partition)
            producer.send("b", b"y")
        assert log.head() == before + 1
        assert {record.commit for t in "ab" for record in read(log, t)} == {before + 1}


@pytest.mark.parametrize("acks", ["none", "written", "synced"])
def test_what_was_flushed_is_readable_whatever_the_acks(stage: Stage, acks: Acks) -> None:
    stage.log.create_topic("clicks")
    with stage.log.producer(acks=acks, batch_bytes=50, linger=LONG) as producer:
        for number in range(100):
            producer.send("clicks", b"%03d" % number)
        producer.flush()
        assert values(stage.elsewhere(), "clicks") == [b"%03d" % n for n in range(100)]


def test_acks_that_are_none_are_refused(log: Log) -> None:
    with pytest.raises(InvalidSetting, match="all"):
        log.producer(acks="all")  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="batch_bytes"):
        log.producer(batch_bytes=0)


def test_a_closed_producer_takes_nothing_more(log: Log) -> None:
    log.create_topic("clicks")
    producer = log.producer()
    producer.close()
    producer.close()
    with pytest.raises(MisusedHandle):
        producer.send("clicks", b"x")
    with pytest.raises(MisusedHandle):
        producer.append("clicks", pa.table({"value": ["x"]}))
    with pytest.raises(MisusedHandle):
        producer.transaction()
    assert values(log, "clicks") == []


def test_append_times_never_go_back_even_if_the_clock_does(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=2)
    for step in (0, 5, -10, 1, 20):
        stage.later(timedelta(seconds=step))
        send(stage.log, "clicks", b"x", partition=step % 2)
    for partition in (0, 1):
        times = [r.timestamp for r in read(stage.log, "clicks", partitions=[partition])]
        assert times == sorted(times)
        assert times[-1] > START


def test_a_refused_record_leaves_nothing_to_the_next_one(log: Log) -> None:
    log.create_topic("clicks")
    with log.producer(linger=LONG) as producer:
        with pytest.raises(UnknownPartition):
            producer.send("clicks", b"bad", headers=[("from", b"bad")], partition=9)
        producer.send("clicks", b"good")
    assert [(r.value, r.headers) for r in read(log, "clicks")] == [(b"good", ())]
    with needs(log, TYPED):
        log.create_topic("users", schema="id string", key="id")
        with log.producer(linger=LONG) as producer:
            with pytest.raises(UnknownPartition):
                producer.send("users", None, key="a", partition=9)
            producer.send("users", {"id": "b"})
        assert values(log, "users") == [{"id": "b"}]


def test_many_threads_may_share_a_producer(log: Log) -> None:
    log.create_topic("clicks", partitions=3)
    with log.producer(acks="written", batch_bytes=200) as producer:

        def work(name: str) -> None:
            for number in range(100):
                producer.send("clicks", f"{name}{number:03d}", key=name)

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in b"abcd":
        mine = [r.value for r in read(log, "clicks") if r.value[0] == name]
        assert mine == [b"%c%03d" % (name, number) for number in range(100)]
    if dense(log):
        for partition in range(3):
            found = offsets(log, "clicks", partitions=[partition])
            assert found == list(range(len(found)))
