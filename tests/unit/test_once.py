"""Repeated records: only the first of each id is read."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.clock import to_datetime
from headrace.errors import UnknownColumn
from headrace.log import Record, once_by


def record(offset: int, value: Any) -> Record:
    return Record("alerts", 0, offset, None, value, (), to_datetime(0), None)


def rows(*ids: str | None) -> list[Record]:
    return [record(offset, {"alert": known}) for offset, known in enumerate(ids)]


def offsets(ids: list[Record], **more: Any) -> list[int]:
    return [found.offset for found in once_by(ids, "alert", **more)]


def test_only_the_first_record_of_an_id_is_read() -> None:
    assert offsets(rows("a", "b", "a", "c", "b")) == [0, 1, 3]


def test_records_without_an_id_repeat_nothing() -> None:
    assert offsets([*rows(None, None), record(2, None), record(3, None)]) == [0, 1, 2, 3]


def test_the_oldest_id_is_forgotten_first() -> None:
    assert offsets(rows("a", "b", "c", "c", "a"), remembered=2) == [0, 1, 2, 4]


@pytest.mark.parametrize("value", [{"rule": "a"}, b"bytes"])
def test_an_id_that_records_do_not_have_is_refused(value: Any) -> None:
    with pytest.raises(UnknownColumn, match="no column 'alert'"):
        offsets([record(0, value)])
