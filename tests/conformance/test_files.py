"""Files that are loaded into any log: each row once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.backfill import reading
from headrace.backfill.chunks import Refused
from headrace.backfill.loading import FILES
from headrace.errors import InvalidRecord, UserError
from headrace.log import Capability, Log
from tests.conformance.stage import needs
from tests.recovery.backfilling import load


@pytest.fixture
def orders(log: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(reading, "CHUNK_ROWS", 10)
    return log


NEEDED = (Capability.SEQUENCES, Capability.TYPED_TOPICS)


def create(log: Log) -> None:
    log.create_topic("orders", schema="id bigint not null, name string", key="id", partitions=2)


def write(path: Path, ids: range, name: str = "a") -> str:
    pq.write_table(pa.table({"id": list(ids), "name": [name] * len(ids)}), path)
    return str(path)


def ids(log: Log) -> list[int]:
    return sorted(n for batch in log.read("orders") for n in batch.data["id"].to_pylist())


def test_a_file_that_is_loaded_twice_is_in_the_log_once(orders: Log, tmp_path: Path) -> None:
    with needs(orders, *NEEDED):
        create(orders)
        write(tmp_path / "a.parquet", range(25))
        for expected in ((25, 0), (0, 25)):
            (loaded,) = load(orders, "orders", str(tmp_path))
            assert (loaded.records, loaded.already) == expected
        assert ids(orders) == list(range(25))


def test_a_load_that_stopped_at_a_bad_row_goes_on_with_the_rest(
    orders: Log, tmp_path: Path
) -> None:
    with needs(orders, *NEEDED):
        create(orders)
        path = tmp_path / "a.csv"
        path.write_text("id\n" + "".join(f"{n}\n" for n in [*range(15), "x", *range(15, 30)]))
        with pytest.raises(InvalidRecord) as caught:
            load(orders, "orders", str(path))
        assert caught.value.details["row"] == 17
        assert ids(orders) == list(range(10))
        refused: list[Refused] = []
        (loaded,) = load(orders, "orders", str(path), refuse=refused.append)
        assert (loaded.records, loaded.already, loaded.refused) == (20, 10, 1)
        assert [row.number for row in refused] == [17]
        assert ids(orders) == list(range(30))


def test_a_file_that_changed_after_it_was_loaded_is_refused(orders: Log, tmp_path: Path) -> None:
    with needs(orders, *NEEDED):
        create(orders)
        path = write(tmp_path / "a.parquet", range(15))
        load(orders, "orders", path)
        write(tmp_path / "a.parquet", range(15), "b")
        with pytest.raises(UserError, match="has changed since 15 of its rows were loaded"):
            load(orders, "orders", path)
        assert ids(orders) == list(range(15))


def test_another_job_loads_a_file_once_more(orders: Log, tmp_path: Path) -> None:
    with needs(orders, *NEEDED):
        create(orders)
        path = write(tmp_path / "a.parquet", range(3))
        for _ in range(2):
            load(orders, "orders", path)
            load(orders, "orders", path, job="again")
        assert ids(orders) == [0, 0, 1, 1, 2, 2]


def test_a_topic_that_is_created_anew_gets_the_rows_again(orders: Log, tmp_path: Path) -> None:
    with needs(orders, *NEEDED):
        create(orders)
        path = write(tmp_path / "a.parquet", range(3))
        load(orders, "orders", path)
        orders.delete_topic("orders")
        orders.create_topic("orders", schema="id bigint, name string")
        load(orders, "orders", path)
        assert ids(orders) == [0, 1, 2]


def test_the_position_in_a_file_is_a_record_of_the_log(orders: Log, tmp_path: Path) -> None:
    with needs(orders, *NEEDED):
        create(orders)
        load(orders, "orders", write(tmp_path / "a.parquet", range(12)))
        records = [record for batch in orders.read(FILES) for record in batch.records()]
        assert len({record.key for record in records}) == 1
        assert b'"row": 12, "records": 12, "complete": true' in records[-1].value
