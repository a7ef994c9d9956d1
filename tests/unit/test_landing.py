"""Decoding the records of a broker, and the landing's stored positions, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.log import Topic
from headrace.plan.kafka.decode import REASON, ROW
from headrace.runtime.landing.landing import Landed, LandingTable
from headrace.runtime.landing.parting import Parted, part
from headrace.store.sqlite.database import Database

SCHEMA = pa.schema([("id", pa.string()), pa.field("age", pa.int32(), nullable=False)])
USERS = Topic("users", 1, SCHEMA, key="id")
ROWS = pa.struct([("id", pa.string()), ("age", pa.int32())])


def records(*given: tuple[bytes | None, bytes | None, dict[str, Any] | None]) -> pa.Table:
    """Records with a key, a value and Spark's decoded row."""
    keys, values, rows = zip(*given, strict=True)
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([0] * len(given), pa.int32()),
            "offset": pa.array(range(len(given)), pa.int64()),
            "timestamp": pa.array([1_000_000] * len(given), pa.timestamp("us", tz="UTC")),
            ROW: pa.array(rows, ROWS),
            REASON: pa.array(["does not decode"] * len(given), pa.string()),
        }
    )


def row(id: str | None, age: int | None) -> dict[str, Any]:
    return {"id": id, "age": age}


def parted(*given: tuple[bytes | None, bytes | None, dict[str, Any] | None]) -> Parted:
    return part(records(*given), USERS, "landing of users")


def test_rows_and_tombstones_keep_their_order() -> None:
    found = parted(
        (b"a", b"{...}", row("a", 1)), (b"a", None, None), (b"a", b"{...}", row("a", 2))
    )  # fmt: skip
    assert found.rows.to_pylist() == [
        {"id": "a", "age": 1}, {"id": "a", "age": None}, {"id": "a", "age": 2},
    ]  # fmt: skip
    assert list(found.tombstones) == [False, True, False]
    assert found.dead.num_rows == 0


def test_what_is_no_row_is_a_dead_letter_with_its_bytes_place_and_reason() -> None:
    found = parted(
        (b"a", b"{garbage", None),
        (b"b", b"\xff\x00", None),
        (b"c", b"null", None),
        (b"d", b'{"id": "d"}', row("d", None)),
        (None, b'{"age": 3}', row(None, 3)),
        (None, None, None),
        (b"e", b"{...}", row("e", 4)),
    )
    assert found.rows.to_pylist() == [{"id": "e", "age": 4}]
    letters = found.dead.to_pylist()
    assert [(x["offset"], x["reason"], x["row"]) for x in letters] == [
        (0, "does not decode", '{"value":"{garbage"}'),
        (1, "does not decode", '{"bytes":"ff00"}'),
        (2, "does not decode", '{"value":"null"}'),
        (3, "no age", '{"id": "d"}'),
        (4, "no key", '{"age": 3}'),
        (5, "no key", None),
    ]


def test_every_record_is_a_row_or_a_dead_letter() -> None:
    given = [(b"a", b"{...}", row("a", n)) for n in range(10)] + [(b"x", b"x", None)]
    found = parted(*given)
    assert found.rows.num_rows + found.dead.num_rows == len(given)


def test_parts_together_are_all_rows_and_are_cut_in_the_same_way_again() -> None:
    rows = pa.table({"id": ["x" * 1_000] * 30_000})
    found = Parted(
        rows, pa.array([False] * 30_000).to_numpy(zero_copy_only=False), rows.slice(0, 0)
    )
    sizes = [part.num_rows for part, _ in found.parts()]
    assert len(sizes) > 1
    assert sum(sizes) == 30_000
    assert sizes == [len(flags) for _, flags in found.parts()]


def test_how_far_a_landing_is_is_there_after_a_restart(tmp_path: Path) -> None:
    database = Database(tmp_path / "app.db", "app")
    table = LandingTable(database)
    landed = Landed({0: 7, 1: 9}, "query", 3, 4, 16, 1)
    with database.writing() as db:
        assert table.find(db, "users") == Landed({})
        table.put(db, "users", landed)
    database.close()
    database = Database(tmp_path / "app.db", "app")
    with database.reading() as db:
        assert LandingTable(database).find(db, "users") == landed
    database.close()
    assert landed.has("query", 3)
    assert not landed.has("query", 4)
    assert not landed.has("another", 3)
