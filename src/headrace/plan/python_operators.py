"""Two of Spark's Python operators, called as Spark's own methods do, but without pandas.

Neither `mapInArrow` nor `transformWithState` of rows uses pandas, yet Spark's methods require it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
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
