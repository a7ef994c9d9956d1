"""Stateless steps explained. They use the defaults of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from headrace.operators.contract import Operator, Term
from headrace.pipeline.stream import Stream


class RowOperator(Operator[Stream]):
    """Rows, each handled by itself."""

    package = "headrace.operators.stateless"
    in_python = True
    terms: ClassVar[Mapping[str, Term]] = {
        "topic": Term("topic"),
        "schema": Term("schema of the topic"),
        "event_time": Term("event time"),
        "key": Term("key of the view"),
        "filter": Term("filter"),
        "project": Term("columns", one="column"),
        "explode": Term("exploded array"),
        "merge": Term("merged stream"),
        "part": Term("inner step"),
        "table": Term("key of the table"),
    }
