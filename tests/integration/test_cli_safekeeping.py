"""`headrace backup`, `restore` and `log check`: output and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_cli_running import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path)
    with made.open() as log:
        log.create_topic("orders")
        with log.producer() as producer:
            producer.send("orders", b"one")
    return made


def test_a_backup_and_a_restore_say_what_they_have_copied(cli: Cli, tmp_path: Path) -> None:
    (report,) = cli.lines("backup", str(tmp_path / "copy"))
    assert (report["commit"], report["apps"], report["left_out"]) == (1, [], [])
    done = cli.run("restore", str(tmp_path / "copy"), code=2)
    assert "exists and is not empty" in done.stderr
    (tmp_path / "log").rename(tmp_path / "away")
    (report,) = cli.lines("restore", str(tmp_path / "copy"))
    assert (report["commit"], report["folder"]) == (1, str(tmp_path / "log"))
    assert cli.run("log", "check").stderr == "Nothing is damaged\n"


def test_damage_is_a_line_each_and_the_exit_code(cli: Cli, tmp_path: Path) -> None:
    (segment,) = (tmp_path / "log" / "segments").iterdir()
    segment.write_bytes(segment.read_bytes()[:-1])
    done = cli.run("log", "check", code=1)
    assert "it is cut off: offsets 0 to 0 are missing" in done.stdout
    assert done.stderr == "1 damaged item\n"
    done = cli.run("log", "check", "--json", code=1)
    assert '"harmless": false' in done.stdout


def test_a_repair_says_what_it_checked_and_where_the_catalog_is_as_it_was(
    cli: Cli, tmp_path: Path
) -> None:
    done = cli.run("log", "repair")
    copy = tmp_path / "log" / "catalog.db.before-repair-1"
    assert done.stderr.startswith(
        "Nothing else is damaged\nThe checksums of the catalog are renewed"
    )
    assert str(copy) in done.stderr.replace("\n", "")
    assert copy.exists()
    (segment,) = (tmp_path / "log" / "segments").iterdir()
    segment.write_bytes(segment.read_bytes()[:-1])
    assert cli.run("log", "repair", code=1).stderr == "1 damaged item\n"
