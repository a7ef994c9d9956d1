"""PostgreSQL's text formats are read exactly: arrays, COPY, snapshots, and places in its log."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.cdc.contract import SourceTransaction, Table
from headrace.cdc.postgres.address import Address
from headrace.cdc.postgres.chunk import PostgresChunk, Snapshot
from headrace.cdc.postgres.columns import Converter, csv_rows, last_of_csv, parse_array
from headrace.cdc.postgres.position import Position
from headrace.errors import InvalidSetting, SourceError


@pytest.mark.parametrize(
    ("text", "elements", "dimensions"),
    [
        (b"{}", [], 1),
        (b"{1,NULL,3}", [b"1", None, b"3"], 1),
        (b'{"NULL","a,b","say \\"hi\\"","back\\\\slash",""}',
         [b"NULL", b"a,b", b'say "hi"', b"back\\slash", b""], 1),
        (b"[0:1]={7,8}", [b"7", b"8"], 1),
        (b"{{1,2},{3,NULL}}", [b"1", b"2", b"3", None], 2),
        (b'{a,"{b}"}', [b"a", b"{b}"], 1),
    ],
)  # fmt: skip
def test_an_array_has_its_elements(
    text: bytes, elements: list[bytes | None], dimensions: int
) -> None:
    assert parse_array(text) == (elements, dimensions)


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b"1,a", (b"1", b"a")),
        (b'1,""', (b"1", b"")),
        (b",\\N", (None, b"\\N")),
        (b'"a,b\nc\r""d""",\b\f', (b'a,b\nc\r"d"', b"\b\f")),
        (b'"NULL","\\."', (b"NULL", b"\\.")),
        (b'"x",' + b"y" * 3_000_000, (b"x", b"y" * 3_000_000)),
    ],
)
def test_a_line_of_copy_is_a_row(line: bytes, row: tuple[bytes | None, ...]) -> None:
    assert csv_rows(b"z,z\n" + line + b"\n", 2) == [(b"z", b"z"), row]
    assert last_of_csv(b"z,z\n" + line + b"\n", 2, [1, 0]) == (row[1], row[0])
    assert csv_rows(b"", 2) == []


def test_a_snapshot_sees_what_was_committed_before_it_and_nothing_that_ran() -> None:
    snapshot = Snapshot("100:105:100,103")
    assert [snapshot.sees(number) for number in (99, 100, 101, 103, 104, 105, 106)] == [
        True, False, True, False, True, False, False,
    ]  # fmt: skip


def test_a_snapshot_sees_across_a_wraparound_of_transaction_numbers() -> None:
    epoch = 3 << 32
    snapshot = Snapshot(f"{epoch - 2}:{epoch + 5}:{epoch - 2},{epoch + 3}")
    assert snapshot.sees((1 << 32) - 1)
    assert not snapshot.sees((1 << 32) - 2)
    assert snapshot.sees(4)
    assert not snapshot.sees(3)
    assert not snapshot.sees(5)


def test_a_chunk_sees_news_of_a_position() -> None:
    table = Table("public", "items", pa.schema([("id", pa.int64())]), ("id",))
    chunk = PostgresChunk(b"", table, 9, "", Snapshot("5:5:"), Converter())
    assert chunk.sees(SourceTransaction("", "0/0@1.1"))
    assert not chunk.sees(SourceTransaction("5", "0/0@1.1"))


def test_a_position_is_written_as_postgresql_writes_it() -> None:
    position = Position(0x1_0000_0A0B, "7384561234567890123", 2)
    assert str(position) == "1/A0B@7384561234567890123.2"
    assert Position.parse(str(position)) == position
    with pytest.raises(SourceError, match="is not a position"):
        Position.parse("binlog.000001:4")


def test_an_address_keeps_its_password_to_itself() -> None:
    address = Address.parse("postgresql://me:s3cret@db:5433/shop?tables=a,b&slot=x&sslmode=require")
    assert address.password == "s3cret"
    assert address.tables == ("a", "b")
    assert (address.host, address.port, address.slot) == ("db", 5433, "x")
    assert "s3cret" not in f"{address}{address!r}"


@pytest.mark.parametrize(
    "url", ["mysql://me:s3cret@db/shop", "postgresql://me:s3cret@db", "postgresql://me:s3cret@db:x/a",
            "postgresql://me:s3cret@db/a?nonsense=1", "postgresql://db/a"],
)  # fmt: skip
def test_an_address_that_cannot_be_read_is_not_quoted(url: str) -> None:
    with pytest.raises(InvalidSetting) as raised:
        Address.parse(url)
    assert "s3cret" not in str(raised.value)
