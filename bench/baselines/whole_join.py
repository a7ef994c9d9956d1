"""Joined tables, hand-written in PySpark: the whole join is recomputed after every change."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

NAME = "PySpark, the whole join again"


def join(spark: SparkSession, log: str, into: Path) -> int:
    """Join the newest row of each order with its product into Parquet, and return the row count."""
    orders = _newest(spark, log, "orders", ["product", "amount"])
    products = _newest(spark, log, "products", ["name", "price"]).select(
        F.col("id").alias("product"), F.col("name").alias("product_name"), "price"
    )
    orders.join(products, "product", "left").write.mode("overwrite").parquet(str(into))
    return spark.read.parquet(str(into)).count()


def _newest(spark: SparkSession, log: str, topic: str, columns: list[str]) -> DataFrame:
    rows = spark.read.format("headrace").option("log", log).option("topic", topic).load()
    newest = F.max_by(F.struct(*columns), "at").alias("newest")
    return rows.groupBy("id").agg(newest).select("id", "newest.*")
