"""Spark's Python operators over Arrow, called as Spark's own methods do, but without pandas.

These do not use pandas, yet Spark's methods require it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasUdfUtils
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Apply a function to the record batches of each task."""
    udf = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*(frame[f"`{name}`"] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def arrow_column(
    function: Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]],
    kind: str,
    *inputs: Column | str,
) -> Column:
    """A column computed from the whole columns of a task, in its order of rows.

    Spark takes it as nondeterministic.
    """
    eval_type = PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF
    udf = UserDefinedFunction(function, kind, evalType=eval_type, deterministic=False)
    return udf(*inputs)


def transform_with_state(
    frame: DataFrame, by: str, processor: StatefulProcessor, schema: StructType
) -> DataFrame:
    """Apply a processor to the rows of each key, in append mode."""
    util = TransformWithStateInPandasUdfUtils(processor, "None")
    kind = PythonEvalType.SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF
    udf = UserDefinedFunction(util.transformWithStateUDF, schema, evalType=kind)
    session = frame.sparkSession
    made = frame.groupBy(by)._jgd.transformWithStateInPySpark(
        udf(*(frame[name] for name in frame.columns))._jc,
        session._jsparkSession.parseDataType(schema.json()),
        "append",
        "None",
        None,
        "",
    )
    return DataFrame(made, session)
