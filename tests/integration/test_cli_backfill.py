"""`headrace produce --file` with files of rows: told in words, and each row once."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.backfill.chunks import CHUNK_ROWS
from tests.integration.test_cli_running import Cli
from tests.waiting import wait_until


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = Cli(tmp_path)
    cli.run("topics", "create", "t", "--schema", "n bigint not null", "--partitions", "2")
    return cli


def numbers(cli: Cli) -> list[int]:
    with cli.open() as log:
        return sorted(n for batch in log.read("t") for n in batch.data["n"].to_pylist())


def test_a_folder_is_loaded_once_and_summed_up(cli: Cli) -> None:
    folder = cli.folder / "history"
    folder.mkdir()
    pq.write_table(pa.table({"n": range(100)}), folder / "a.parquet")
    (folder / "b.csv").write_text("n\n100\n101\n")
    (folder / "c.jsonl").write_text('{"n": 102}\n')
    told = cli.json("produce", "t", "--file", str(folder))
    assert (told["records"], told["already"], told["skipped"]) == (103, 0, 0)
    assert told["bytes"] == sum(file.stat().st_size for file in folder.iterdir())
    assert sum(part["records"] for part in told["partitions"].values()) == 103
    again = cli.run(
        "produce", "t", "--file", str(folder / "*.csv"), "-f", str(folder / "a.parquet")
    )
    assert again.stderr.startswith("0 records to t in ")
    assert "102 were in the log already" in again.stderr
    assert numbers(cli) == list(range(103))


def test_a_load_that_is_killed_and_run_again_adds_each_row_once(cli: Cli) -> None:
    total = 12 * CHUNK_ROWS + 5
    pq.write_table(pa.table({"n": range(total)}), cli.folder / "a.parquet")
    words = ("produce", "t", "--file", str(cli.folder / "a.parquet"))
    process = cli.start(*words)
    with cli.open() as log:
        wait_until(lambda: log.topic("t").records > 0)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    told = cli.json(*words)
    assert told["already"] > 0
    assert told["records"] + told["already"] == total
    assert numbers(cli) == list(range(total))


def test_a_bad_row_says_what_is_in_the_log_and_how_to_go_on(cli: Cli) -> None:
    path, bad = cli.folder / "a.csv", cli.folder / "bad"
    path.write_text("n\n" + "1\n" * CHUNK_ROWS + "x\n2\n")
    done = cli.run("produce", "t", "--file", str(path), code=2)
    assert f"{path}, row {CHUNK_ROWS + 2}: Column 'n' of topic 't' is bigint" in done.stderr
    assert f"{path} is in the log up to row {CHUNK_ROWS + 1:,}" in done.stderr
    assert "Add --skip-bad FILE" in done.stderr
    done = cli.run("produce", "t", "--file", str(path), "--skip-bad", str(bad))
    assert done.stderr.startswith("1 record to t in ")
    assert f"{CHUNK_ROWS:,} were in the log already; 1 bad row went to {bad}" in done.stderr
    (entry,) = map(json.loads, bad.read_text().splitlines())
    assert (entry["file"], entry["line"], entry["text"]) == (
        str(path), CHUNK_ROWS + 2, '{"n": "x"}',
    )  # fmt: skip


def test_a_column_that_does_not_fit_is_no_bad_row_to_skip(cli: Cli) -> None:
    (cli.folder / "a.csv").write_text("m\n1\n")
    done = cli.run("produce", "t", "--file", str(cli.folder / "a.csv"), code=2)
    assert "Topic 't' has no column 'm'" in done.stderr
    assert f"No row of {cli.folder / 'a.csv'} is in the log" in done.stderr
    assert "--skip-bad" not in done.stderr


def test_a_changed_file_is_refused_and_another_id_loads_it_again(cli: Cli) -> None:
    path = cli.folder / "a.jsonl"
    path.write_text('{"n": 1}\n')
    cli.run("produce", "t", "--file", str(path))
    path.write_text('{"n": 1}\n{"n": 2}\n')
    done = cli.run("produce", "t", "--file", str(path), code=2)
    assert "has changed since 1 of its rows were loaded into topic 't'" in done.stderr
    assert "choose a --producer-id" in done.stderr
    cli.run("produce", "t", "--file", str(path), "--producer-id", "second")
    assert numbers(cli) == [1, 1, 2]


def test_lines_and_files_are_not_mixed(cli: Cli) -> None:
    (cli.folder / "a.csv").write_text("n\n1\n")
    plain = cli.run("produce", "t", "-f", "-", "-f", "in", code=2)
    assert "- and in cannot be read together" in plain.stderr
    mixed = cli.run("produce", "t", "-f", str(cli.folder / "a.csv"), "-f", "-", code=2)
    assert "- has no ending that tells its format" in mixed.stderr
