"""Rows with what was fetched for each, in Spark: the frame around `engine.fetching`."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.clock import micros
from headrace.operators.remote_lookup.declare import Fetched
from headrace.operators.remote_lookup.workers import Fetching
from headrace.plan.counters import Counters
from headrace.plan.python_operators import map_in_arrow

_KNOWN = "_known"


def fetched(rows: DataFrame, stream: Fetched, counters: Counters | None) -> DataFrame:
    """Rows with the columns that a remote table has for them, or without those it knows not."""
    asked = stream.remote
    fields = tuple(
        (name, asked.schema.field(name).with_name(made)) for name, made in stream.from_remote
    )
    fetching = Fetching(
        getattr(asked.fetch, "__qualname__", repr(asked.fetch)),
        asked.fetch,
        stream.on[0],
        fields,
        _KNOWN,
        micros(asked.timeout),
        asked.cache,
        micros(asked.cache_for),
    )
    more = from_arrow_schema(pa.schema([made for _, made in fields]))
    kinds = StructType([*rows.schema.fields, *more.fields]).add(_KNOWN, "boolean")
    rows = map_in_arrow(rows, fetching, kinds)
    if stream.how == "inner":
        if counters is not None:
            name = counters.name(counters.filtered, "filtered")
            rows = rows.observe(name, F.count_if(~F.col(_KNOWN)).alias("n"))
        rows = rows.where(_KNOWN)
    return rows.drop(_KNOWN)
