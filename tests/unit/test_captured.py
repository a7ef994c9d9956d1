"""Tables of captured changes: what they show, by their meaning in plain Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.cdc.envelope import EVENT_TIME, envelope_schema
from headrace.errors import InvalidPipeline
from headrace.pipeline.stream import check_topic, sources

COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string())])
MOMENT = 1_700_000_000_000


def change(op: str, key: int, note: str | None, at: int = MOMENT) -> dict[str, Any]:
    row = {"id": key, "note": note}
    return {
        "key": json.dumps({"id": key}),
        "before": row if op == "d" else None,
        "after": None if op == "d" else row,
        "source": {"ts_us": at * 1_000},
        "op": op,
        "ts_ms": at,
    }


def shown(folder: Path, changes: list[dict[str, Any]], tombstones: list[bool]) -> Any:
    url = f"file:{folder}"
    app = hr.App("shop", log=url)
    orders = app.captured("shop.main.orders", schema="id bigint, note string", key="id")
    view = app.view("orders", orders)
    schema = envelope_schema(COLUMNS)
    with hr.open_log(url) as log, log.producer() as producer:
        log.create_topic("shop.main.orders", schema=schema, key="key", event_time=EVENT_TIME)
        rows = pa.Table.from_pylist(changes, schema=schema)
        producer.append("shop.main.orders", rows, tombstones=np.array(tombstones))
    return [(row["id"], row["note"]) for row in hr.show(view.stream, log=url).rows]


def test_a_captured_table_has_the_last_row_of_each_key_and_no_deleted_ones(tmp_path: Path) -> None:
    changes = [change("c", 1, "a"), change("c", 2, "b"), change("u", 1, "c"), change("d", 2, "b")]
    tombstone = {**change("d", 2, None), "before": None}
    assert shown(tmp_path, [*changes, tombstone], [False] * 4 + [True]) == [(1, "c")]


def test_a_key_that_was_deleted_can_come_back(tmp_path: Path) -> None:
    changes = [change("c", 1, "a"), change("d", 1, "a"), change("c", 1, None)]
    assert shown(tmp_path, changes, [False] * 3) == [(1, None)]


def test_a_captured_table_without_its_key_column_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="'code' is not in the schema"):
        hr.App("shop").captured("shop.main.orders", schema="id bigint", key="code")


def test_a_table_may_have_more_columns_than_are_declared_and_none_of_another_type(
    tmp_path: Path,
) -> None:
    with hr.open_log(f"file:{tmp_path}") as log:
        more = pa.schema([*COLUMNS, ("paid", pa.bool_())])
        name = "shop.main.orders"
        log.create_topic(name, schema=envelope_schema(more), key="key", event_time=EVENT_TIME)
        there = log.topic(name).topic
        for declared, allowed in (
            ("id bigint, note string", True),
            ("paid boolean, id bigint", True),
            ("id bigint, note bigint", False),
            ("id bigint, customer string", False),
        ):
            table = hr.App("shop").captured(name, schema=declared, key="id")
            (source,) = sources(table)
            if allowed:
                check_topic(there, source)
            else:
                with pytest.raises(InvalidPipeline, match="not as declared"):
                    check_topic(there, source)
