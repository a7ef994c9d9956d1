"""`topics` creates, shows, changes and deletes topics."""

from __future__ import annotations

from pathlib import Path

from headrace.cli.topics import SETTINGS
from tests.integration.test_cli_running import Cli

SCHEMA = "url string, user string, at timestamp"


def test_create_makes_the_log_and_says_so(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    done = cli.run("topics", "create", "orders", "--partitions", "3")
    assert done.stderr == f"Created topic 'orders' with 3 partitions in {cli.url}\n"
    assert done.stdout == ""
    assert (tmp_path / "log").is_dir()


def test_create_prints_what_was_declared_as_json(tmp_path: Path) -> None:
    words = ("--schema", SCHEMA, "--key", "url", "--event-time", "at", "--set", "retention=7d")
    made = Cli(tmp_path).json("topics", "create", "views", *words, "--set", "compression=zstd")
    settings = made.pop("settings")
    assert made == {
        "name": "views",
        "partitions": 1,
        "schema": SCHEMA,
        "key": "url",
        "event_time": "at",
    }
    assert settings["retention"] == "7d"
    assert settings["compression"] == "zstd"
    assert set(settings) == set(SETTINGS)


def test_a_topic_that_is_there_is_an_error_unless_it_may_be(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "t", "--partitions", "2")
    assert "error: Topic 't' already exists" in cli.run("topics", "create", "t", code=2).stderr
    again = cli.json("topics", "create", "t", "--if-not-exists")
    assert again["partitions"] == 2
    assert (
        "already exists and was not changed"
        in cli.run("topics", "create", "t", "--if-not-exists").stderr
    )


def test_what_cannot_be_declared_is_refused_with_the_reason(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    for words, reason in (
        (("a b",), "'a b' is not a valid topic name"),
        (("t", "--schema", "a strnig"), "unknown type 'strnig'"),
        (("t", "--schema", "a string", "--key", "b"), "The key column 'b' is not in the schema"),
        (("t", "--set", "retention=soon"), "'soon' is not a duration"),
        (("t", "--set", "retension=7d"), "There is no topic setting 'retension'"),
        (("t", "--set", "retention"), "'retention' is not a setting"),
        (("t", "--partitions", "0"), "cannot have 0 partitions"),
    ):
        done = cli.run("topics", "create", *words, code=2)
        assert done.stderr.startswith("error: ")
        assert reason in done.stderr


def test_list_shows_every_topic(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.fill("raw", ["a", "b"], partitions=2)
    cli.run("topics", "create", "typed", "--schema", SCHEMA, "--key", "url")
    first, second = cli.lines("topics", "list")
    assert (first["name"], first["partitions"], first["records"]) == ("raw", 2, 2)
    assert (second["name"], second["schema"], second["records"]) == ("typed", SCHEMA, 0)
    shown = cli.run("topics", "list").stdout
    assert "raw bytes" in shown
    assert SCHEMA in shown


def test_a_log_without_topics_lists_none_and_says_how_to_make_one(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.open().close()
    assert cli.lines("topics", "list") == []
    done = cli.run("topics", "list")
    assert done.stdout == ""
    assert "headrace topics create" in done.stderr


def test_describe_shows_partitions_settings_and_the_frontier(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "v", "--schema", SCHEMA, "--event-time", "at", "--partitions", "2")
    cli.run("produce", "v", input='{"url": "/", "user": "bo", "at": "2026-01-31T12:00:00Z"}\n')
    described = cli.json("topics", "describe", "v")
    assert described["frontier"] == "2026-01-31T12:00:00Z"
    assert described["records"] == 1
    assert [p["partition"] for p in described["by_partition"]] == [0, 1]
    holding = next(p for p in described["by_partition"] if p["end"])
    assert set(holding) == {
        *("partition", "first", "end", "segments", "tiered_segments", "bytes", "last_append"),
    }
    assert holding["last_append"].endswith("Z")
    shown = cli.run("topics", "describe", "v").stdout
    assert all(name in shown for name in SETTINGS)
    assert "2026-01-31T12:00:00Z" in shown


def test_an_unknown_topic_is_the_users_mistake(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.open().close()
    for words in (("describe",), ("delete", "--yes"), ("compact",), ("upkeep",)):
        done = cli.run("topics", words[0], "nope", *words[1:], code=2)
        assert done.stderr.startswith("error: There is no topic 'nope'\n  → ")


def test_alter_changes_settings_partitions_and_columns(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "t", "--schema", "a string")
    words = ("--set", "retention=1h", "--partitions", "3", "--schema", "a string, b int")
    changed = cli.json("topics", "alter", "t", *words)
    assert (changed["partitions"], changed["schema"]) == (3, "a string, b int")
    assert changed["settings"]["retention"] == "1h"
    assert "Changed topic 't'" in cli.run("topics", "alter", "t", "--set", "skew=none").stderr
    stored = cli.json("topics", "describe", "t")
    assert (stored["partitions"], stored["schema"]) == (3, "a string, b int")
    assert (stored["settings"]["retention"], stored["settings"]["skew"]) == ("1h", "none")


def test_alter_without_a_change_is_a_mistake(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "t")
    assert "There is nothing to change" in cli.run("topics", "alter", "t", code=2).stderr
    fewer = cli.run("topics", "alter", "t", "--partitions", "0", code=2)
    assert fewer.stderr.startswith("error: ")


def test_delete_refuses_where_nobody_can_be_asked(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.fill("t", ["a"])
    done = cli.run("topics", "delete", "t", input="y\n", code=2)
    assert "Delete topic 't' and its 1 record?" in done.stderr
    assert "  → Add --yes" in done.stderr
    assert [topic["name"] for topic in cli.lines("topics", "list")] == ["t"]


def test_delete_with_yes_deletes(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.fill("t", ["a", "b"])
    cli.fill("u", ["a"])
    assert cli.json("topics", "delete", "t", "--yes") == {"deleted": "t", "records": 2}
    assert cli.run("topics", "delete", "u", "-y").stderr == "Deleted topic 'u' and its 1 record\n"
    assert cli.lines("topics", "list") == []


def test_compact_leaves_the_last_record_of_each_key(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "t", "--set", "cleanup=compact")
    lines = [f'{{"key": "{n % 2}", "value": "{n}"}}\n' for n in range(10)]
    cli.run("produce", "t", input="".join(lines))
    done = cli.json("topics", "compact", "t")
    assert (done["topic"], done["records_removed"]) == ("t", 8)
    assert [record.value for record in cli.records("t")] == [b"8", b"9"]


def test_a_topic_that_is_not_compacted_cannot_be_compacted(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "t")
    done = cli.run("topics", "compact", "t", code=2)
    assert "--set cleanup=compact" in done.stderr


def test_upkeep_reports_on_one_topic_or_on_all(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.fill("a", ["x"])
    cli.fill("b", ["x"])
    assert [report["topic"] for report in cli.lines("topics", "upkeep")] == ["a", "b"]
    report = cli.json("topics", "upkeep", "b")
    assert report == {
        "topic": "b",
        "segments_deleted": 0,
        "segments_compacted": 0,
        "segments_tiered": 0,
        "records_removed": 0,
        "bytes_freed": 0,
    }
    assert "bytes freed" in cli.run("topics", "upkeep").stdout


def test_upkeep_deletes_what_retention_says(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "t", "--set", "segment_bytes=1KiB")
    for value in "abc":
        cli.run("produce", "t", input=f'{{"value": "{value * 1000}"}}\n')
    cli.run("topics", "alter", "t", "--set", "retention_bytes=1KiB")
    report = cli.json("topics", "upkeep", "t")
    assert (report["segments_deleted"], report["records_removed"]) == (2, 2)
    assert report["bytes_freed"] > 2000
    assert [record.value for record in cli.records("t")] == [b"c" * 1000]


def test_lateness_shows_what_each_delay_would_do(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "views", "--schema", "at timestamp", "--event-time", "at")
    assert "no rows to measure" in cli.run("topics", "lateness", "views").stdout
    for second in (30, 10, 29):
        row = f'{{"at": "2026-01-31T12:00:{second:02d}Z"}}'
        cli.run("produce", "views", input=row)
    shown = cli.run("topics", "lateness", "views", "--tolerated", "0.4").stdout
    assert "3 rows, 2 out of order, by up to 20 s" in shown
    assert "Suggested: Lateness(delay=td(seconds=1), grace=td(seconds=19))" in shown
    found = cli.json("topics", "lateness", "views")
    assert found["out_of_order"] == 2
    assert found["most_behind_seconds"] == 20
    assert found["choices"][0] == {"delay_seconds": 0, "late": 2, "share": 2 / 3}
    assert found["suggestion"] == {"delay_seconds": 30, "grace_seconds": 0}


def test_lateness_needs_an_event_time(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "raw")
    assert "Topic 'raw' has no event time" in cli.run("topics", "lateness", "raw", code=2).stderr


def test_advance_moves_the_frontier_on(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "views", "--schema", "at timestamp", "--event-time", "at")
    said = cli.run("topics", "advance", "views", "2026-01-31T12:00:00Z").stderr
    assert said == "The frontier of topic 'views' is now at 2026-01-31T12:00:00Z\n"
    said = cli.run("topics", "advance", "views", "2026-01-31T11:00:00Z").stderr
    assert said == "The frontier of topic 'views' is already at 2026-01-31T12:00:00Z\n"
    assert cli.json("topics", "advance", "views", "2026-01-31T13:00:00Z") == {
        "topic": "views",
        "commit": 2,
        "frontier": "2026-01-31T13:00:00Z",
    }
    assert (
        "'latest' is not a time" in cli.run("topics", "advance", "views", "latest", code=2).stderr
    )
