"""Results in other tools: every row, with the types of the view's declaration."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
import tracemalloc
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import MissingExtra
from headrace.log import open_log
from headrace.log.home import folder_of
from headrace.store import Views, open_views
from headrace.store.location import known_folder, share_folder, views_folder
from headrace.store.sqlite import typed
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.typed import parse_arrow
from headrace.store.sqlite.values import create_table, insert, quoted, shown

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("wall", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("paid", pa.bool_()),
        pa.field("share", pa.float64()),
        pa.field("small", pa.int16()),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("place", pa.struct([("lat", pa.float64()), ("names", pa.list_(pa.string()))])),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1, "at": NOON, "wall": datetime(2026, 1, 31, 13), "day": date(2026, 1, 31),
        "price": Decimal("1.50"), "paid": True, "share": math.inf, "small": 3, "raw": b"\xff",
        "tags": ["a", None], "place": {"lat": 1.5, "names": ["x"]},
    },
    {
        "id": 2, "at": NOON.replace(microsecond=1), "wall": datetime(1, 1, 1), "paid": False,
        "day": date(1969, 12, 31), "price": Decimal("-99999999.99"), "share": 0.5,
    },
    {"id": 3},
]  # fmt: skip


def make(folder: Path, rows: pa.Table, app: str = "shop") -> str:
    """The database of an application with the view `orders`, as the sink makes it."""
    url = f"file:{folder}"
    database = Database(views_folder(url) / f"{app}.db", app)
    with database.writing() as db:
        create_table(db, "stored", rows.schema, ["id"])
        insert(db, "stored", rows)
        columns = ", ".join(f"{shown(quoted(f.name), f.type)} AS {f.name}" for f in rows.schema)
        db.execute(f"CREATE VIEW orders AS SELECT {columns}, 'open' AS _state FROM stored")
        law = json.dumps({"rows": 1, "counted": 1})
        db.execute(
            "INSERT INTO _headrace_step VALUES ('orders', '', '', '{}', '{}', 0, ?, 0)", (law,)
        )
        kinds = json.dumps([[field.name, str(field.type)] for field in rows.schema])
        view = ("orders", "orders", '["id"]', kinds, "live", 0, 0)
        db.execute("INSERT INTO _headrace_view VALUES (?, ?, ?, ?, ?, ?, ?)", view)
    database.close()
    return url


@pytest.fixture
def rows() -> pa.Table:
    return pa.Table.from_pylist(ROWS, SCHEMA)


@pytest.fixture
def views(tmp_path: Path, rows: pa.Table) -> Iterator[Views]:
    with open_views(make(tmp_path, rows)) as opened:
        yield opened


def test_a_view_in_arrow_has_the_types_and_values_that_were_stored(
    views: Views, rows: pa.Table
) -> None:
    found = views.to_arrow("orders")
    assert found.drop_columns(["_state"]).equals(rows)
    assert found.schema.field("at").type == pa.timestamp("us", "UTC")
    assert found.column("_state").to_pylist() == ["open"] * 3
    assert views.newest("orders").to_arrow().equals(found)


def test_a_query_has_the_types_of_the_columns_it_selects(views: Views, rows: pa.Table) -> None:
    assert views.query("SELECT * FROM orders").to_arrow().drop_columns(["_state"]).equals(rows)
    sql = (
        "WITH some AS (SELECT at AS moment, * FROM shop.orders WHERE id < ?) "
        "SELECT moment, p.price AS cost, sum(p.id) AS total, max(p.share), 'x' AS text "
        "FROM (SELECT * FROM some) p GROUP BY p.id"
    )
    found = views.query(sql, (2,)).to_arrow()
    assert found.schema.types == [
        pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.int64(), pa.float64(), pa.string()
    ]  # fmt: skip
    assert found.to_pylist()[0]["moment"] == NOON


def test_a_query_that_finds_nothing_still_has_types(views: Views) -> None:
    found = views.query("SELECT at, price FROM orders WHERE id > 9").to_arrow()
    assert (found.num_rows, found.schema.types) == (
        0,
        [pa.timestamp("us", "UTC"), pa.decimal128(10, 2)],
    )


def test_values_that_do_not_fit_the_first_select_keep_the_column_as_text(views: Views) -> None:
    found = views.query("SELECT at FROM orders WHERE id = 1 UNION ALL SELECT 'soon'").to_arrow()
    assert found.column("at").to_pylist() == ["2026-01-31 12:00:00", "soon"]
    mixed = views.query("SELECT 1 AS a UNION ALL SELECT x'ff' UNION ALL SELECT NULL").to_arrow()
    assert mixed.column("a").to_pylist() == ["1", "ff", None]


def test_a_table_of_headraces_own_has_no_types_of_the_view(views: Views) -> None:
    assert views.query("SELECT at FROM stored").to_arrow().schema.types == [pa.int64()]


@pytest.mark.parametrize("year", [1, 1969, 9999, 10_000, 12_345])
def test_times_of_any_year_come_back(tmp_path: Path, year: int) -> None:
    moment = (year - 1970) * 31_556_952_000_000 + 1
    rows = pa.table(
        {"id": [1], "at": pa.array([moment], pa.int64()).cast(pa.timestamp("us", "UTC"))}
    )
    with open_views(make(tmp_path, rows)) as views:
        assert views.to_arrow("orders").column("at").cast(pa.int64()).to_pylist() == [moment]


@pytest.mark.parametrize("kind", [*SCHEMA.types, pa.float32(), pa.int8(), pa.int32(), pa.string()])
def test_a_stored_type_is_read_as_it_was(kind: pa.DataType) -> None:
    assert parse_arrow(str(kind)) == kind


@pytest.mark.parametrize("name", ["x, y", "a: b", "<", "struct<"])
def test_a_type_whose_name_is_ambiguous_is_text(name: str) -> None:
    kind = pa.struct([(name, pa.int64())])
    assert parse_arrow(str(kind)) in (kind, pa.string())


def test_a_query_returns_every_row_unless_limited(tmp_path: Path) -> None:
    with open_views(make(tmp_path, pa.table({"id": range(12_000)}))) as views:
        found = views.query("SELECT id FROM orders")
        assert (len(found.rows), found.more) == (12_000, False)
        some = views.query("SELECT id FROM orders", limit=10)
        assert (len(some.rows), some.more) == (10, True)


def test_a_view_is_read_in_batches_and_not_as_python_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed, "ROWS_AT_ONCE", 1_000)
    with open_views(make(tmp_path, pa.table({"id": range(30_000)}))) as views:
        tracemalloc.start()
        try:
            with views.batches("orders") as batches:
                sizes = [batch.num_rows for batch in batches]
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert sizes == [1_000] * 30
    assert most < 2_000_000  # 30,000 tuples take 4 MB


def test_batches_are_of_one_moment(views: Views, tmp_path: Path) -> None:
    with views.batches("orders") as batches:
        database = Database(views_folder(f"file:{tmp_path}") / "shop.db", "shop")
        with database.writing() as db:
            db.execute("DELETE FROM stored")
        database.close()
        assert batches.read_all().num_rows == 3
    assert views.to_arrow("orders").num_rows == 0


def test_pandas_and_polars_have_zones_and_decimals(views: Views) -> None:
    pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    frame = views.to_pandas("orders")
    assert str(frame["at"].dtype) == "datetime64[us, UTC]"
    assert frame["price"][0] == Decimal("1.50")
    other = views.query("SELECT at, price, paid FROM orders").to_polars()
    assert other.schema == {
        "at": polars.Datetime("us", "UTC"),
        "price": polars.Decimal(10, 2),
        "paid": polars.Boolean,
    }
    assert views.to_polars("orders").height == len(views.query("SELECT 1 FROM orders").to_pandas())


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_missing_package_is_named_with_its_command(
    views: Views, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=f"'{name}' is not installed. pip install '{name}"):
        getattr(views, f"to_{name}")("orders")


def test_any_sqlite_client_reads_a_view_and_cannot_write_it(views: Views, tmp_path: Path) -> None:
    file = views.folder / "shop.db"
    with sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True) as db:
        assert db.execute("SELECT at, price, paid, _state FROM orders").fetchone() == (
            "2026-01-31 12:00:00", "1.50", 1, "open",
        )  # fmt: skip
        with pytest.raises(sqlite3.OperationalError):
            db.execute("DELETE FROM stored")
    db.close()


# The command line


def run(
    folder: Path, *words: str, code: int = 0, environment: Mapping[str, str] | None = None
) -> Result:
    runner = CliRunner(env={"HEADRACE_LOG": f"file:{folder}", **(environment or {})})
    done = runner.invoke(app, ["views", *words], prog_name="headrace", catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def log(tmp_path: Path, rows: pa.Table) -> Path:
    """The folder of a log with a view."""
    open_log(f"file:{tmp_path}").close()
    make(tmp_path, rows)
    return tmp_path


@pytest.mark.parametrize("words", [("show", "orders"), ("query", "SELECT id FROM orders")])
@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_command_that_cuts_says_so(log: Path, words: tuple[str], json: tuple[str]) -> None:
    cut = run(log, *words, "--limit", "2", *json)
    assert "There are more than 2 rows: --limit N shows up to N, --limit 0 all" in cut.stderr
    assert ("views export orders --to FILE" in cut.stderr) == (words[0] == "show")
    assert "more than" not in run(log, *words, "--limit", "0", *json).stderr


def test_a_view_is_exported_whole(log: Path, rows: pa.Table) -> None:
    for name in ("orders.parquet", "orders.arrow"):
        assert "Wrote 3 rows to" in run(log, "export", "orders", "--to", str(log / name)).stderr
    found = parquet.read_table(log / "orders.parquet")
    assert found.drop_columns(["_state"]).to_pylist() == rows.to_pylist()
    assert found.schema.field("at").type == pa.timestamp("us", "UTC")
    with pa.ipc.open_file(log / "orders.arrow") as file:
        assert file.read_all().drop_columns(["_state"]).equals(rows)
    assert not list(log.glob(".*.part"))


def test_csv_holds_plain_columns_only(log: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    refused = run(log, "export", "orders", "--to", str(log / "orders.csv"), code=2)
    assert "CSV cannot hold arrays and structs" in refused.stderr
    other = tmp_path_factory.mktemp("plain")
    open_log(f"file:{other}").close()
    plain = pa.Table.from_pylist(ROWS, SCHEMA).select(["id", "at", "price"])
    make(other, plain)
    run(other, "export", "shop.orders", "--to", str(other / "orders.csv"))
    assert csv.read_csv(other / "orders.csv").column("id").to_pylist() == [1, 2, 3]


def test_an_export_that_fails_leaves_the_file_as_it_was(log: Path) -> None:
    file = log / "orders.txt"
    file.write_text("before")
    assert "Use .parquet" in run(log, "export", "orders", "--to", str(file), code=2).stderr
    missing = log / "none" / "orders.parquet"
    assert "cannot be written" in run(log, "export", "orders", "--to", str(missing), code=2).stderr
    assert file.read_text() == "before"


def test_commands_ask_which_of_two_applications_is_meant(log: Path, rows: pa.Table) -> None:
    make(log, rows, "store")
    for words in (("show", "orders"), ("export", "orders", "--to", "x.parquet")):
        done = run(log, *words, code=2)
        assert "Several applications have a view 'orders': shop, store" in done.stderr
        assert "Write shop.orders or store.orders, or choose an application (--app" in done.stderr
    assert "orders of store" in run(log, "show", "store.orders").stdout
    assert "orders of shop" in run(log, "show", "orders", "--app", "shop").stdout


def test_a_command_that_finds_no_views_says_where_it_looked(tmp_path: Path) -> None:
    open_log(f"file:{tmp_path}").close()
    assert f"There are no views in {tmp_path / 'views'}" in run(tmp_path, "list").stderr
    assert f"Looked in {tmp_path / 'views'}" in run(tmp_path, "show", "x", code=2).stderr
    unknown = run(tmp_path, "query", "SELECT * FROM x", code=2)
    assert f"none yet in {tmp_path / 'views'}" in unknown.stderr


def test_views_of_an_application_on_kafka_are_read_without_a_broker(
    tmp_path: Path, rows: pa.Table
) -> None:
    make(tmp_path / "127.0.0.1_1", rows)
    kafka = {"HEADRACE_LOG": "kafka://127.0.0.1:1", "HEADRACE_STATE": str(tmp_path)}
    assert "orders  shop" in run(tmp_path, "list", environment=kafka).stdout
    empty = run(tmp_path, "list", "--app", "other", environment=kafka)
    assert f"There are no views of other in {tmp_path / '127.0.0.1_1' / 'views'}" in empty.stderr
    assert "set HEADRACE_STATE to the folder" in empty.stderr


def test_the_state_of_a_cluster_is_found_under_another_of_its_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    ran, other = "kafka://one:9092", "kafka://two:9092"
    assert known_folder(other, "id") == folder_of(other)
    share_folder(ran, "id")
    folder_of(ran).mkdir()
    assert known_folder(other, "id") == known_folder(ran, "id") == folder_of(ran)
    assert known_folder(other, "another id") == folder_of(other)
