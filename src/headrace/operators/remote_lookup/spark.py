"""Remote lookup in Spark, whose workers call the user function with a batch of keys at a time."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.clock import micros
from headrace.operators.remote_lookup.declare import Fetched
from headrace.operators.remote_lookup.workers import Fetching
from headrace.plan.counters import Counters, counted
from headrace.plan.python_operators import map_in_arrow

_KNOWN = "_known"


def rows(stream: Fetched, given: DataFrame, counters: Counters | None) -> DataFrame:
    """The rows with the columns of the remote table; an inner lookup drops unknown keys."""
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
    kinds = StructType([*given.schema.fields, *more.fields]).add(_KNOWN, "boolean")
    found = map_in_arrow(given, fetching, kinds)
    if stream.how == "inner":
        found = counted(found, counters, "filtered", F.count_if(~F.col(_KNOWN)))
        found = found.where(_KNOWN)
    return found.drop(_KNOWN)
