"""`consume` prints the requested range, and moves group offsets by exactly that much."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.clock import SystemClock, VirtualClock
from headrace.eventsourcing.topics import events_topic
from headrace.log import open_log
from tests.integration.test_cli_running import Cli

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
VALUES = [f"v{n}" for n in range(20)]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """A log with 20 records in two commits: 12 in topic t, over 3 partitions, then 8 more."""
    cli = Cli(tmp_path)
    cli.fill("t", VALUES[:12], partitions=3)
    with cli.open() as log, log.producer() as producer:
        for value in VALUES[12:]:
            producer.send("t", value, key=value)
    return cli


def values(records: list[Any]) -> list[str]:
    return [record["value"] for record in records]


# Without a group


def test_everything_is_printed_and_then_it_stops(cli: Cli) -> None:
    records = cli.lines("consume", "t")
    assert sorted(values(records)) == sorted(VALUES)
    for record in records:
        assert list(record) == [
            *("topic", "partition", "offset", "key", "value", "timestamp", "headers"),
        ]
        assert record["timestamp"].endswith("Z")
    assert {record["partition"] for record in records} == {0, 1, 2}


def test_partitions_are_merged_in_the_order_of_commits(cli: Cli) -> None:
    printed = values(cli.lines("consume", "t"))
    assert set(printed[:12]) == set(VALUES[:12])


def test_a_value_that_python_cannot_hold_is_text_and_the_rest_is_printed(cli: Cli) -> None:
    with cli.open() as log, log.producer() as producer:
        log.create_topic("odd", schema="id int, at timestamp, days array<date>")
        odd = pa.table(
            {
                "id": pa.array([1, 2, 3], pa.int32()),
                "at": pa.array([0, 568_971_820_800_000_000, 0], pa.timestamp("us", tz="UTC")),
                "days": pa.array([[0], [9_999_999], [0]], pa.list_(pa.int32())).cast(
                    pa.list_(pa.date32())
                ),
            }
        )
        producer.append("odd", odd)
    rows = [record["value"] for record in cli.lines("consume", "odd")]
    assert rows[1] == {"id": 2, "at": "20000-01-01 00:00:00.000000Z", "days": ["29349-01-25"]}
    assert [rows[0], rows[2]] == [
        {"id": number, "at": "1970-01-01T00:00:00Z", "days": ["1970-01-01"]} for number in (1, 3)
    ]


def test_a_partition_is_in_order(cli: Cli) -> None:
    for partition in range(3):
        records = cli.lines("consume", "t", "--partition", str(partition))
        assert [record["offset"] for record in records] == list(range(len(records))) != []
    two = cli.lines("consume", "t", "-p", "0", "-p", "2", "-p", "0")
    assert {record["partition"] for record in two} == {0, 2}


def test_max_prints_exactly_so_many(cli: Cli) -> None:
    assert len(cli.lines("consume", "t", "--max", "7")) == 7
    assert len(cli.lines("consume", "t", "--max", "700")) == 20
    assert "'--max'" in cli.run("consume", "t", "--max", "0", code=2).stderr


def test_from_and_to_take_offsets_commits_and_times(cli: Cli) -> None:
    part = cli.lines("consume", "t", "-p", "0", "--from", "1", "--to", "3")
    assert [record["offset"] for record in part] == [1, 2]
    with cli.open() as log:
        head = log.head()
        time = log.commit_time(head)
    second = cli.lines("consume", "t", "--from", f"commit:{head - 1}")
    assert set(values(second)) == set(VALUES[12:])
    first = cli.lines("consume", "t", "--to", f"commit:{head - 1}")
    assert set(values(first)) == set(VALUES[:12])
    stamp = second[0]["timestamp"]
    assert set(values(cli.lines("consume", "t", "--from", stamp))) == set(VALUES[12:])
    assert set(values(cli.lines("consume", "t", "--to", stamp))) == set(VALUES[:12])
    assert cli.lines("consume", "t", "--from", "latest") == []
    assert time > 0


def test_an_offset_beyond_a_short_partition_means_its_end(cli: Cli) -> None:
    lengths = [len(cli.lines("consume", "t", "-p", str(p))) for p in range(3)]
    assert len(set(lengths)) > 1
    records = cli.lines("consume", "t", "--from", str(max(lengths) - 1))
    assert {record["offset"] for record in records} == {max(lengths) - 1}
    assert len(cli.lines("consume", "t", "--to", "1000")) == 20


def test_an_offset_that_is_nowhere_is_the_users_mistake(cli: Cli) -> None:
    done = cli.run("consume", "t", "--from", "1000", code=2)
    assert done.stderr.startswith("error: Offset 1000 is not in partition 0 of 't'")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--from", "soon"), "'soon' is not a position"),
        (("--partition", "7"), "Topic 't' has no partition 7"),
        (("--commit", "after"), "--commit needs a group"),
        (("--instance", "a"), "--instance needs a group"),
        (("--group", "g", "--to", "5"), "--to cannot be combined with --group"),
        (("--group", "g", "--partition", "0"), "--partition cannot be combined with --group"),
        (("--follow", "--to", "5"), "--to cannot be combined with --follow"),
        (("--group", "a b"), "'a b' is not a valid group name"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    cli: Cli, words: tuple[str, ...], reason: str
) -> None:
    assert reason in cli.run("consume", "t", *words, code=2).stderr


def test_an_unknown_topic_is_the_users_mistake(cli: Cli) -> None:
    assert "There is no topic 'nope'" in cli.run("consume", "nope", code=2).stderr


def test_follow_prints_from_the_start_until_there_are_enough(cli: Cli) -> None:
    assert len(cli.lines("consume", "t", "--follow", "--max", "20")) == 20
    words = ("consume", "t", "--follow", "--max", "2", "-p", "0", "--from", "1")
    part = cli.lines(*words)
    assert [(record["partition"], record["offset"]) for record in part] == [(0, 1), (0, 2)]


def test_the_output_for_people_has_a_line_for_each_record(cli: Cli) -> None:
    cli.run("topics", "create", "u")
    text = '{"key": "k", "value": "one", "headers": {"h": "x"}}\n{"key": "k", "value": null}\n'
    cli.run("produce", "u", input=text)
    first, second = cli.run("consume", "u", "--headers").stdout.splitlines()
    assert first.startswith("0/0  ")
    assert first.endswith("Z  k  one  h=x")
    assert second.endswith("  k  (tombstone)")
    assert cli.run("consume", "u").stdout.splitlines()[0].endswith("  k  one")


def test_a_typed_row_is_printed_as_an_object(cli: Cli) -> None:
    cli.run("topics", "create", "typed", "--schema", "id int, at timestamp", "--key", "id")
    row = {"id": 1, "at": "2026-01-31T12:00:00Z"}
    cli.run("produce", "typed", input=json.dumps(row) + "\n")
    (record,) = cli.lines("consume", "typed")
    assert (record["key"], record["value"]) == (1, row)


# With a group


def lag(cli: Cli, group: str = "g") -> int:
    found: int = cli.json("groups", "describe", group)["lag"]
    return found


def test_a_group_goes_on_where_it_has_stopped(cli: Cli) -> None:
    first = cli.lines("consume", "t", "--group", "g")
    assert len(first) == 20
    assert lag(cli) == 0
    cli.run("produce", "t", input='{"value": "new"}\n')
    assert values(cli.lines("consume", "t", "--group", "g")) == ["new"]
    assert cli.lines("consume", "t", "--group", "g") == []


@pytest.mark.parametrize("commit", ["before", "after"])
def test_after_max_the_group_has_had_exactly_so_many(cli: Cli, commit: str) -> None:
    words = ("consume", "t", "--group", "g", "--commit", commit, "--max", "5")
    seen = []
    for left in (15, 10, 5, 0):
        seen += values(cli.lines(*words))
        assert lag(cli) == left
    assert sorted(seen) == sorted(VALUES)


def test_groups_do_not_disturb_each_other(cli: Cli) -> None:
    cli.run("consume", "t", "--group", "a")
    assert len(cli.lines("consume", "t", "--group", "b", "--max", "3")) == 3
    assert (lag(cli, "a"), lag(cli, "b")) == (0, 17)


def test_from_is_for_partitions_where_the_group_has_not_been(cli: Cli) -> None:
    assert cli.lines("consume", "t", "--group", "g", "--from", "latest") == []
    assert lag(cli) == 0
    assert cli.lines("consume", "t", "--group", "g", "--from", "earliest") == []


def test_the_partitions_of_a_dead_member_are_waited_for(cli: Cli) -> None:
    # With a virtual clock a consumer has no heartbeat, so this one is as good as killed.
    clock = VirtualClock(SystemClock().now())
    dead = open_log(cli.url, clock=clock)
    dead.consumer("t", group="g", session=timedelta(seconds=1))
    assert len(cli.lines("consume", "t", "--group", "g")) == 20
    assert lag(cli) == 0
    dead.close()


def test_a_new_member_of_the_same_name_takes_the_place_of_a_dead_one_at_once(cli: Cli) -> None:
    dead = open_log(cli.url, clock=VirtualClock(SystemClock().now()))
    dead.consumer("t", group="g", instance="one", session=timedelta(hours=1))
    assert len(cli.lines("consume", "t", "--group", "g", "--instance", "one")) == 20
    dead.close()


def test_the_partitions_of_a_living_member_are_left_to_it(cli: Cli) -> None:
    with cli.open() as log, log.consumer("t", group="g", session=timedelta(seconds=1)) as other:
        done = cli.run("consume", "t", "--group", "g", "--json")
        assert done.stdout == ""
        assert done.stderr == "note: other members of 'g' are reading partition 0, 1, 2\n"
        assert len(other.assignment) == 3


# Of a domain

DOMAIN = """
from dataclasses import dataclass
import headrace.eventsourcing as es

@dataclass(frozen=True)
class Paid:
    cents: int
    currency: str

def cents(data):
    return {"cents": round(data["euros"] * 100)}

paid = es.event(
    "paid", Paid, version=3, upcast={1: [es.upcast(cents)], 2: [es.default("currency", "EUR")]}
)
shop = es.Domain("shop", [
    es.aggregate(
        "order", initial=Paid(0, ""), decide=lambda s, c: (), evolve=lambda s, e: e, events=[paid]
    )
])
"""


def test_events_of_a_domain_are_printed_in_the_current_versions(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paying.py").write_text(DOMAIN)
    topic = events_topic("shop", 1)
    stored = [(1, '{"euros": 1.5}'), (2, '{"cents": 7}'), (3, '{"cents": 5, "currency": "CHF"}')]
    with cli.open() as log, log.producer() as producer:
        log.ensure_topic(topic)
        for number, (schema, data) in enumerate([*stored, (1, "{}")], 1):
            row = {
                "aggregate": "order/1", "version": number, "type": "paid", "schema": schema,
                "at": NOON, "id": f"{number}:0", "command": str(number), "metadata": {},
                "tags": [], "data": data,
            }  # fmt: skip
            producer.send("shop.events", row)

    def shown(*more: str) -> list[tuple[int, Any]]:
        rows = [line["value"] for line in cli.lines("consume", "shop.events", *more)]
        return [(row["schema"], json.loads(row["data"])) for row in rows]

    assert shown() == [*((n, json.loads(data)) for n, data in stored), (1, {})]
    assert shown("--domain", "paying:shop") == [
        (3, {"cents": 150, "currency": "EUR"}),
        (3, {"cents": 7, "currency": "EUR"}),
        (3, {"cents": 5, "currency": "CHF"}),
        (1, {}),  # cannot be read, which stderr says
    ]
    said = cli.run("consume", "shop.events", "--domain", "paying:shop").stderr
    assert "1 of them cannot be read" in said
    refused = cli.run("consume", "t", "--domain", "paying:shop", code=2).stderr
    assert "no events and no commands of the domain 'shop'" in refused
