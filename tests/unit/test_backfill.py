"""Files as rows: formats, types, bad rows, and the order of files."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.backfill import reading
from headrace.backfill.chunks import LineChunk, Refused
from headrace.backfill.finding import find_files
from headrace.errors import HeadraceError, UnknownColumn, UserError, WrongType
from headrace.log import Log, open_log
from tests.recovery.backfilling import load

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with open_log(f"file:{tmp_path / 'log'}") as log:
        yield log


def rows(log: Log, topic: str = "t") -> list[dict[str, Any]]:
    return [row for batch in log.read(topic) for row in batch.data.to_pylist()]


def parquet(folder: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return str(folder / "t.parquet")


def text(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


# Order


def test_files_are_read_by_name_and_each_once(tmp_path: Path) -> None:
    for name in ("b.csv", "a.jsonl", "c/a.parquet", "c/_SUCCESS", "c/.a.parquet.crc", "d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = ["a.jsonl", "b.csv", "c/a.parquet"]
    assert [file.path for file in find_files([str(tmp_path)])] == [
        str(tmp_path / name) for name in names
    ]
    both = find_files([str(tmp_path / "b.csv"), str(tmp_path / "*.[cj]*"), str(tmp_path / "c")])
    assert [Path(file.path).name for file in both] == ["b.csv", "a.jsonl", "a.parquet"]


@pytest.mark.parametrize("wanted", ["*.csv", ".", "t.txt"])
def test_a_selection_without_a_readable_file_is_refused(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(UserError) as caught:
        find_files([str(tmp_path / wanted)])
    assert ".parquet, .csv and .jsonl" in caught.value.hint


# Types


def test_times_of_all_units_and_zones_are_the_same_moment(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", schema="at timestamp")
    for unit, zone in (("s", None), ("ms", "UTC"), ("us", "Europe/Berlin"), ("ns", None)):
        moment = AT if zone is not None else AT.replace(tzinfo=None)
        file = parquet(tmp_path, at=pa.array([moment], pa.timestamp(unit, zone)))
        load(log, "t", file, job=unit)
    load(
        log,
        "t",
        text(tmp_path / "t.csv", "at", "2026-01-31T12:00:00Z", "2026-01-31 12:00:00.000000000",
             "2026-01-31T14:00:00+02:00", "2026-01-31T07:00-0500", " 2026-01-31 12:00 "),
        text(tmp_path / "t.jsonl", '{"at": "2026-01-31T14:00:00+02:00"}',
             '{"at": "2026-01-31T12:00:00"}'),
    )  # fmt: skip
    assert [row["at"] for row in rows(log)] == [AT] * 11


def test_nested_rows_are_the_same_from_parquet_and_json_lines(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", schema="user struct<id: bigint, tags: array<string>>, at timestamp")
    user = {"id": 1, "tags": ["a", None]}
    pq.write_table(pa.table({"user": [user, None], "at": [AT, None]}), tmp_path / "t.parquet")
    lines = ('{"user": {"id": 1, "tags": ["a", null]}, "at": "2026-01-31T12:00:00Z"}', "{}")
    load(log, "t", str(tmp_path / "t.parquet"), text(tmp_path / "t.jsonl", *lines))
    assert rows(log) == [{"user": user, "at": AT}, {"user": None, "at": None}] * 2


def test_a_field_that_the_topic_does_not_have_is_not_dropped(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", schema="users array<struct<id: bigint>>")
    file = parquet(tmp_path, users=[[{"id": 1, "name": "a"}]])
    with pytest.raises(WrongType, match="it has no field 'name'"):
        load(log, "t", file)


def test_texts_of_csv_get_the_types_of_their_columns(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", schema="s string, n int, x double, b boolean, d date, m decimal(5,2), y "
                     "binary")  # fmt: skip
    load(log, "t", text(tmp_path / "t.csv", "n,s,x,b,d,m,y",
                        '007,"a\n""b""",1e3,true,2026-01-31,1.5,aGk=', ',"",,,,,'))  # fmt: skip
    assert rows(log) == [
        {"s": 'a\n"b"', "n": 7, "x": 1000.0, "b": True, "d": AT.date(), "m": Decimal("1.50"),
         "y": b"hi"},
        {"s": "", "n": None, "x": None, "b": None, "d": None, "m": None, "y": None},
    ]  # fmt: skip


def test_a_raw_topic_takes_keys_and_values(log: Log, tmp_path: Path) -> None:
    log.create_topic("t")
    with gzip.open(tmp_path / "t.jsonl.gz", "wt") as packed:
        packed.write('{"key": "k", "value": "v"}\n\n{"key": "k", "value": null}\n')
    load(log, "t", text(tmp_path / "t.csv", "key,value", "a,b"), str(tmp_path / "t.jsonl.gz"))
    records = [record for batch in log.read("t") for record in batch.records()]
    assert [(r.key, r.value) for r in records] == [(b"a", b"b"), (b"k", b"v"), (b"k", None)]


# Bad rows and files


def test_all_bad_rows_are_refused_by_their_number_and_the_others_loaded(
    log: Log, tmp_path: Path
) -> None:
    log.create_topic("t", schema="n bigint not null, at timestamp")
    refused: list[Refused] = []
    good = "1,2026-01-31"
    (found,) = load(
        log,
        "t",
        text(tmp_path / "t.csv", "n,at", good, "x,", good, "1", "1,2,3", "2,later", ",", good),
        refuse=refused.append,
    )
    assert sorted(row.number for row in refused) == [3, 5, 6, 7, 8]
    assert (found.records, found.refused) == (3, 5)
    assert {row.number: row.error.message for row in refused}[5] == (
        "The row has 1 values for 2 columns"
    )
    assert "'later' does not fit" in {row.number: row.error.message for row in refused}[7]


def test_a_malformed_row_stops_a_load_before_the_rows_after_it(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", schema="n bigint, m bigint")
    file = text(tmp_path / "t.csv", "n,m", "1,1", "2", "3,3")
    with pytest.raises(HeadraceError, match="row 3: The row has 1 values for 2 columns"):
        load(log, "t", file)
    assert rows(log) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.parquet", "n\n1\n", "is not a Parquet file"),
        ("t.parquet", "", "is not a Parquet file"),
        ("t.csv.gz", "n\n1\n", "cannot be read"),
        ("t.csv", "n,k\n1,2\n", "Topic 't' has no column 'k'"),
        ("t.csv", "n,n\n1,2\n", "more than once"),
        ("t.csv", "m\n1\n", "Topic 't' needs the column 'n'"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_as_a_whole(
    log: Log, tmp_path: Path, name: str, content: str, message: str
) -> None:
    log.create_topic("t", schema="n bigint not null, m bigint")
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        load(log, "t", str(tmp_path / name))
    assert str(tmp_path / name) in caught.value.message
    assert not {"row", "line"} & caught.value.details.keys()


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "head.csv"])
def test_an_empty_file_has_no_rows(log: Log, tmp_path: Path, name: str) -> None:
    log.create_topic("t", schema="n bigint")
    (tmp_path / name).write_text("n\n" if name == "head.csv" else "")
    (found,) = load(log, "t", str(tmp_path / name))
    assert (found.records, found.share) == (0, 1.0)


def test_numbers_are_not_taken_for_times(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", schema="at timestamp")
    with pytest.raises(WrongType, match="numbers, whose unit it does not tell") as caught:
        load(log, "t", parquet(tmp_path, at=[1_794_940_181_594]))
    assert "timestamp_millis(at)" in caught.value.hint


def test_times_are_not_taken_for_numbers(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", schema="at bigint")
    with pytest.raises(WrongType, match="the file has times") as caught:
        load(log, "t", parquet(tmp_path, at=[datetime(2026, 1, 31, tzinfo=UTC)]))
    assert "Declare 'at timestamp'" in caught.value.hint


def test_csv_cannot_hold_nested_columns(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", schema="a array<bigint>")
    with pytest.raises(WrongType, match="which CSV cannot hold"):
        load(log, "t", text(tmp_path / "t.csv", "a", "1"))


def test_a_file_that_changes_while_it_is_read_is_refused(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("t", schema="n bigint")
    path = tmp_path / "t.jsonl"
    path.write_text('{"n": 1}\n')
    added = LineChunk.add

    def grow(self: LineChunk, *rest: Any) -> int:
        path.write_text('{"n": 1}\n{"n": 2}\n')
        return added(self, *rest)

    monkeypatch.setattr(LineChunk, "add", grow)
    with pytest.raises(UserError, match="was changed while it was read"):
        load(log, "t", str(path))
    assert rows(log) == []


# Chunks


def test_columns_that_are_added_to_the_topic_do_not_move_the_position(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK_ROWS", 4)
    log.create_topic("t", schema="n bigint")
    file = text(tmp_path / "t.csv", "n", *map(str, range(6)), "x", "7")
    with pytest.raises(WrongType):
        load(log, "t", file)
    log.alter_topic("t", schema="n bigint, m bigint")
    monkeypatch.setattr(reading, "CHUNK_ROWS", 3)
    load(log, "t", file, refuse=lambda row: None)
    assert [row["n"] for row in rows(log)] == [0, 1, 2, 3, 4, 5, 7]


def test_rows_that_are_too_large_together_are_several_commits(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", schema="s string")
    load(log, "t", parquet(tmp_path, s=["x" * 900_000] * 50))
    assert len(rows(log)) == 50
    assert len(log.commits("t", 0, 100)) == 3


@pytest.mark.parametrize(
    "line",
    ['{"n": 5.0}', '{"n": 1}{"n": 2}', '{"s": 5}', '{"n": 1, "n": 2}', '{"key": 1, "value": null}',
     '{"k": 1}', '{"x": "NaN"}', '{"m": 1.555}', '{"at": 5}', '{"b": 1}',
     '{"at": "2026-01-31T12:00:00.1234567Z"}',
     '{"s": null, "n": null}', '{"s": "\\ud83d"}', '{"n": 9223372036854775808}'],
)  # fmt: skip
def test_a_line_means_the_same_whether_it_is_read_alone_or_with_others(
    log: Log, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = "n bigint, s string, x double, m decimal(5,2), at timestamp, b boolean"
    for topic in ("t", "slow"):
        log.create_topic(topic, schema=schema)
    file = text(tmp_path / "t.jsonl", '{"n": 1}', line, '{"s": "a"}')
    refused: dict[str, list[Refused]] = {"t": [], "slow": []}
    load(log, "t", file, refuse=refused["t"].append)
    monkeypatch.setattr(LineChunk, "_at_once", lambda self: None)
    load(log, "slow", file, refuse=refused["slow"].append)
    assert rows(log) == rows(log, "slow")
    assert [(r.number, r.text) for r in refused["t"]] == [
        (r.number, r.text) for r in refused["slow"]
    ]


def test_an_unknown_column_of_a_line_is_refused(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", schema="n bigint")
    with pytest.raises(UnknownColumn, match="line 2: Topic 't' has no column 'm'"):
        load(log, "t", text(tmp_path / "t.jsonl", '{"n": 1}', '{"m": 1}'))
