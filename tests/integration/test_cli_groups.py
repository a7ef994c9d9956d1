"""`groups` lists, describes, resets and deletes groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.groups import IDLE
from tests.integration.test_cli_running import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = Cli(tmp_path)
    cli.fill("t", [str(n) for n in range(10)], partitions=2)
    cli.run("consume", "t", "--group", "g", "--max", "4")
    return cli


def test_list_shows_every_group_and_its_lag(cli: Cli) -> None:
    cli.run("consume", "t", "--group", "h")
    g, h = cli.lines("groups", "list")
    assert (g["name"], g["members"], g["topics"], g["lag"]) == ("g", 0, ["t"], 6)
    assert g["seconds"] > 0
    assert (h["name"], h["lag"], h["seconds"]) == ("h", 0, 0)
    shown = cli.run("groups", "list").stdout
    assert [line.split()[:4] for line in shown.splitlines()] == [
        ["group", "members", "topics", "lag"], ["g", "0", "t", "6"], ["h", "0", "t", "0"],
    ]  # fmt: skip


def test_a_log_without_groups_lists_none_and_says_how_to_make_one(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.open().close()
    assert cli.lines("groups", "list") == []
    assert "headrace consume TOPIC --group" in cli.run("groups", "list").stderr


def test_describe_shows_lag_by_partition_in_records_and_seconds(cli: Cli) -> None:
    described = cli.json("groups", "describe", "g")
    assert [set(lag) for lag in described["lags"]] == 2 * [
        {"topic", "partition", "committed", "end", "records", "seconds", "member"}
    ]
    assert sum(lag["records"] for lag in described["lags"]) == described["lag"] == 6
    assert sum(lag["committed"] for lag in described["lags"]) == 4
    shown = cli.run("groups", "describe", "g").stdout
    assert "no members" in shown
    assert "6 records" in shown


def test_describe_marks_members_that_have_nothing_to_do(cli: Cli) -> None:
    with cli.open() as log:
        members = [log.consumer("t", group="g") for _ in range(3)]
        for _ in range(3):
            for member in members:
                member.poll(max_records=1)
        described = cli.json("groups", "describe", "g")
        assert sorted(member["idle"] for member in described["members"]) == [False, False, True]
        assert all(member["heartbeat"].endswith("Z") for member in described["members"])
        shown = cli.run("groups", "describe", "g").stdout
        assert shown.count(IDLE) == 1
        assert "t/0" in shown and "t/1" in shown
        refused = cli.run("groups", "reset", "g", "--topic", "t", "--to", "earliest", code=2)
        assert "Group 'g' has 3 active members" in refused.stderr
        assert cli.run("groups", "delete", "g", "--yes", code=2).stderr.startswith("error: ")
        for member in members:
            member.close()


def test_reset_moves_a_group(cli: Cli) -> None:
    described = cli.json("groups", "reset", "g", "--topic", "t", "--to", "earliest")
    assert (described["group"], described["topic"], described["dry_run"]) == ("g", "t", False)
    assert sum(moved["before"] for moved in described["offsets"].values()) == 4
    assert {moved["after"] for moved in described["offsets"].values()} == {0}
    assert cli.json("groups", "describe", "g")["lag"] == 10
    assert len(cli.lines("consume", "t", "--group", "g")) == 10


def test_a_dry_run_only_says_where_it_would_go(cli: Cli) -> None:
    described = cli.json("groups", "reset", "g", "--topic", "t", "--to", "latest", "--dry-run")
    assert sum(moved["after"] for moved in described["offsets"].values()) == 10
    done = cli.run("groups", "reset", "g", "--topic", "t", "--to", "latest", "--dry-run")
    assert "Nothing was changed" in done.stderr
    assert cli.json("groups", "describe", "g")["lag"] == 6


def test_a_group_can_be_placed_before_it_has_read_anything(cli: Cli) -> None:
    cli.run("groups", "reset", "new", "--topic", "t", "--to", "latest")
    assert cli.lines("consume", "t", "--group", "new") == []


def test_reset_needs_a_topic_and_a_position(cli: Cli) -> None:
    assert "'--topic'" in cli.run("groups", "reset", "g", "--to", "latest", code=2).stderr
    assert "'--to'" in cli.run("groups", "reset", "g", "--topic", "t", code=2).stderr
    bad = cli.run("groups", "reset", "g", "--topic", "t", "--to", "soon", code=2)
    assert "'soon' is not a position" in bad.stderr
    lost = cli.run("groups", "reset", "g", "--topic", "nope", "--to", "latest", code=2)
    assert "There is no topic 'nope'" in lost.stderr


def test_an_unknown_group_is_the_users_mistake(cli: Cli) -> None:
    for words in (("describe", "nope"), ("delete", "nope", "--yes")):
        assert "There is no group 'nope'" in cli.run("groups", *words, code=2).stderr


def test_delete_forgets_a_group_if_it_may(cli: Cli) -> None:
    refused = cli.run("groups", "delete", "g", code=2)
    assert "  → Add --yes" in refused.stderr
    assert cli.json("groups", "delete", "g", "--yes") == {"deleted": "g"}
    assert cli.lines("groups", "list") == []
    cli.run("consume", "t", "--group", "g", "--max", "1")
    assert cli.run("groups", "delete", "g", "-y").stderr == "Deleted group 'g'\n"
