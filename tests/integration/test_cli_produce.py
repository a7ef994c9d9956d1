"""Lines become records: each once, and none is dropped in silence."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.producing import CHUNK_LINES
from tests.integration.test_cli_running import Cli
from tests.waiting import wait_until

TYPED = ("--schema", "id bigint not null, name string, price decimal(10,2)", "--key", "id")


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def numbers(start: int, stop: int) -> str:
    return lines(*({"key": str(n), "value": str(n)} for n in range(start, stop)))


def stored(cli: Cli, topic: str) -> list[int]:
    return sorted(int(record.value) for record in cli.records(topic))


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "raw", "--partitions", "3")
    cli.run("topics", "create", "typed", *TYPED)
    return cli


# Good lines


def test_keys_and_values_are_stored_as_text_or_as_compact_json(cli: Cli) -> None:
    cli.run(
        "produce",
        "raw",
        input=lines(
            {"key": "k", "value": "text", "partition": 0},
            {"key": 7, "value": {"a": [1, None]}, "headers": {"h": "x"}, "partition": 0},
            {"value": "été", "headers": [["h", "1"], ["h", None]], "partition": 0},
            {"key": "k", "value": None, "partition": 0},
        ),
    )
    assert [(r.key, r.value, r.headers) for r in cli.records("raw")] == [
        (b"k", b"text", ()),
        (b"7", b'{"a":[1,null]}', (("h", b"x"),)),
        (None, "été".encode(), (("h", b"1"), ("h", None))),
        (b"k", None, ()),
    ]


def test_a_line_of_a_typed_topic_is_its_row(cli: Cli) -> None:
    cli.run(
        "produce",
        "typed",
        input=lines({"id": 1, "name": "a", "price": 1.5}, {"key": 1, "value": None}),
    )
    row, tombstone = cli.records("typed")
    assert (row.key, row.value["name"], str(row.value["price"])) == (1, "a", "1.50")
    assert (tombstone.key, tombstone.value) == (1, None)


def test_the_summary_counts_records_and_offsets(cli: Cli) -> None:
    (cli.folder / "in").write_text(numbers(0, 100))
    report = cli.json("produce", "raw", "--file", str(cli.folder / "in"))
    assert (report["topic"], report["records"], report["skipped"], report["already"]) == (
        "raw",
        100,
        0,
        0,
    )
    assert report["bytes"] == len(numbers(0, 100))
    parts = report["partitions"]
    assert sum(part["records"] for part in parts.values()) == 100
    assert all(part["first"] == 0 and part["end"] == part["records"] for part in parts.values())
    assert stored(cli, "raw") == list(range(100))


def test_the_summary_for_people_is_on_stderr(cli: Cli) -> None:
    done = cli.run("produce", "raw", "--file", "-", "--acks", "none", input=numbers(0, 2))
    assert done.stdout == ""
    assert done.stderr.startswith("2 records to raw in ")
    assert stored(cli, "raw") == [0, 1]


def test_blank_lines_are_no_records_and_count_as_lines(cli: Cli) -> None:
    done = cli.run("produce", "raw", input='\n{"value": "1"}\n  \n{}\n', code=2)
    assert "standard input, line 4" in done.stderr
    assert "Lines 1 to 2 are in the log; line 4 was rejected" in done.stderr


def test_what_consume_prints_can_be_produced_again(cli: Cli) -> None:
    cli.run("produce", "raw", input=lines({"key": {"base64": "/w=="}, "value": "v"}))
    printed = cli.run("consume", "raw", "--json").stdout
    cli.run("topics", "create", "copy", "--partitions", "3")
    cli.run("produce", "copy", input=printed)
    ours, copy = cli.records("raw"), cli.records("copy")
    assert [(r.partition, r.key, r.value) for r in copy] == [
        (r.partition, r.key, r.value) for r in ours
    ]


# Bad lines


def test_a_bad_line_is_named_with_its_column_and_what_is_in_the_log(cli: Cli) -> None:
    rows = [{"id": n} for n in range(41)]
    path = cli.folder / "rows"
    path.write_text(lines(*rows, {"id": "x"}, {"id": 43}))
    done = cli.run("produce", "typed", "--file", str(path), code=2)
    assert done.stderr.startswith(f"error: {path}, line 42: Column 'id' of topic 'typed' is ")
    assert "  → Lines 1 to 41 are in the log; line 42 was rejected\n" in done.stderr
    assert f"tail -n +42 {path} | headrace produce typed" in done.stderr
    assert len(cli.records("typed")) == 41


@pytest.mark.parametrize(
    ("topic", "line", "reason"),
    [
        ("raw", "{", "The line is not JSON"),
        ("raw", '{"key": 1}', 'The line has no "value"'),
        ("raw", '{"value": 1, "partition": 3}', "Topic 'raw' has no partition 3"),
        ("raw", '{"value": "\\ud800"}', "line 1: "),
        ("typed", '{"id": 1, "nmae": "x"}', "Topic 'typed' has no column 'nmae'"),
        ("typed", '{"name": "x"}', "A record for topic 'typed' has no key"),
        ("typed", '{"id": 1, "price": 1.005}', "it has more than 2 decimals"),
        ("typed", '{"id": 1, "name": "\\ud800"}', "Column 'name'"),
    ],
)
def test_a_bad_first_line_leaves_the_topic_as_it_was(
    cli: Cli, topic: str, line: str, reason: str
) -> None:
    done = cli.run("produce", topic, input=line + "\n", code=2)
    assert done.stderr.startswith("error: standard input, line 1: ")
    assert reason in done.stderr
    assert "No line is in the log; line 1 was rejected" in done.stderr
    assert cli.records(topic) == []
    good = '{"id": 1, "name": "a"}' if topic == "typed" else '{"value": "1"}'
    cli.run("produce", topic, input=good + "\n")
    assert len(cli.records(topic)) == 1


def test_bad_lines_can_be_passed_over_and_are_kept_with_their_reasons(cli: Cli) -> None:
    bad = cli.folder / "bad.jsonl"
    text = lines({"id": 1}, {"id": "x"}) + "{\n" + lines({"id": 2}, {"key": 1, "value": {}})
    report = cli.json("produce", "typed", "--skip-bad", str(bad), input=text)
    assert (report["records"], report["skipped"]) == (2, 3)
    kept = [json.loads(line) for line in bad.read_text().splitlines()]
    assert [(entry["line"], entry["text"]) for entry in kept] == [
        (2, '{"id": "x"}'),
        (3, "{"),
        (5, '{"key": 1, "value": {}}'),
    ]
    assert "Column 'id'" in kept[0]["error"]
    done = cli.run("produce", "typed", "--skip-bad", str(bad), input=text)
    assert f"3 bad lines went to {bad}" in done.stderr


def test_a_file_that_is_not_there_is_the_users_mistake(cli: Cli) -> None:
    done = cli.run("produce", "raw", "--file", "/nope", code=2)
    assert done.stderr == "error: /nope cannot be read: No such file or directory\n"
    done = cli.run("produce", "raw", "--skip-bad", "/nope/bad", code=2)
    assert "/nope/bad cannot be written" in done.stderr


def test_an_unknown_topic_and_an_unknown_ack_are_the_users_mistake(cli: Cli) -> None:
    assert "There is no topic 'nope'" in cli.run("produce", "nope", code=2).stderr
    assert "'--acks'" in cli.run("produce", "raw", "--acks", "maybe", code=2).stderr


# Resuming


def test_a_killed_producer_with_an_id_goes_on_where_it_was(cli: Cli) -> None:
    total = 4 * CHUNK_LINES + 250
    process = cli.start("produce", "raw", "--producer-id", "p", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(numbers(0, 2 * CHUNK_LINES + 500).encode())
    process.stdin.flush()
    with cli.open() as log:
        wait_until(lambda: log.topic("raw").records == 2 * CHUNK_LINES)
    process.send_signal(signal.SIGKILL)  # with half a chunk unsent
    process.communicate()
    (cli.folder / "in").write_text(numbers(0, total))
    words = ("produce", "raw", "--file", str(cli.folder / "in"), "--producer-id", "p")
    report = cli.json(*words)
    assert (report["records"], report["already"]) == (total - 2 * CHUNK_LINES, 2 * CHUNK_LINES)
    assert stored(cli, "raw") == list(range(total))
    again = cli.json(*words)
    assert (again["records"], again["already"]) == (0, total)
    assert stored(cli, "raw") == list(range(total))


def test_a_mended_file_goes_on_after_the_chunks_in_the_log(cli: Cli) -> None:
    path = cli.folder / "in"
    good, rest = numbers(0, CHUNK_LINES + 41), numbers(CHUNK_LINES + 41, CHUNK_LINES + 50)
    path.write_text(good + "{\n" + rest)
    words = ("produce", "raw", "--file", str(path), "--producer-id", "p")
    done = cli.run(*words, code=2)
    assert f"line {CHUNK_LINES + 42}: The line is not JSON" in done.stderr
    assert (
        f"Lines 1 to {CHUNK_LINES} are in the log; line {CHUNK_LINES + 42} was rejected"
        in done.stderr
    )
    assert "run the same command again" in done.stderr
    path.write_text(good + rest)
    cli.run(*words)
    assert stored(cli, "raw") == list(range(CHUNK_LINES + 50))


def test_bad_lines_do_not_confuse_a_restart_even_a_chunk_of_them(cli: Cli) -> None:
    path, bad = cli.folder / "in", cli.folder / "bad"
    path.write_text("{\n" * (CHUNK_LINES + 10) + numbers(0, 2 * CHUNK_LINES) + "}\n")
    words = ("produce", "raw", "--file", str(path), "--producer-id", "p", "--skip-bad", str(bad))
    for expected in ((2 * CHUNK_LINES, 0), (0, 2 * CHUNK_LINES)):
        report = cli.json(*words)
        assert (report["records"], report["already"]) == expected
        assert report["skipped"] == len(bad.read_text().splitlines()) == CHUNK_LINES + 11
    assert stored(cli, "raw") == list(range(2 * CHUNK_LINES))


def test_other_lines_under_the_same_id_are_refused_and_not_dropped(cli: Cli) -> None:
    words = ("produce", "raw", "--producer-id", "p")
    cli.run(*words, input=numbers(0, 300))
    grown = cli.run(*words, input=numbers(0, 400), code=2)
    assert "there were 300 records, and now there are 400" in grown.stderr
    assert "another --producer-id" in grown.stderr
    shrunk = cli.run(*words, input="", code=2)
    assert "Producer 'p' has sent more than standard input holds" in shrunk.stderr
    elsewhere = cli.run("produce", "typed", "--producer-id", "p", input=lines({"id": 1}), code=2)
    assert "Producer 'p' has written to topic 'raw'" in elsewhere.stderr
    assert stored(cli, "raw") == list(range(300))
    assert cli.records("typed") == []


def test_lines_too_large_for_one_transaction_are_committed_in_smaller_chunks(cli: Cli) -> None:
    big = "x" * 900_000
    text = lines(*({"value": f"{n}{big}"} for n in range(50)))
    for records, already in ((50, 0), (0, 50)):
        report = cli.json("produce", "raw", "--producer-id", "p", input=text)
        assert (report["records"], report["already"]) == (records, already)
