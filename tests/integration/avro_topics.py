"""Read a topic as a Spark stream, write it as Avro, read that again, and send it to another topic.

    python -m tests.integration.avro_topics SERVERS CHECKPOINT

Prints Spark's version, and Spark's result for bytes that are not Avro. Spark gets its jars when its
Java starts, so this is a separate process.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from headrace.runtime.session import SparkSettings, configuration
from headrace.servers.java import jars
from headrace.servers.java.home import BRIEF

COLUMNS = "item string, number bigint, price decimal(10,2), at timestamp, tags array<string>"
TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"
AVRO = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "number", "type": ["null", "long"]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def main(servers: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master("local[2]")
    settings = configuration(SparkSettings(cores=2, memory="1g"))
    settings["spark.jars"] = ",".join(map(str, jars("spark-kafka")))
    settings["spark.driver.extraJavaOptions"] = " ".join(BRIEF)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    schema = json.dumps(AVRO)
    orders = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "jars.in")
        .option("startingOffsets", "earliest")
        .load()
    )
    rows = orders.select(F.from_json(F.col("value").cast("string"), COLUMNS).alias("row"))
    encoded = rows.select(to_avro(F.struct("row.*"), schema).alias("value"))
    decoded = encoded.select(from_avro("value", schema, {"mode": "PERMISSIVE"}).alias("row"))
    query = (
        decoded.select(F.to_json("row", {"timestampFormat": TIME}).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "jars.out")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    garbage = spark.createDataFrame([(b"no avro at all",)], "value binary")
    read = garbage.select(from_avro("value", schema, {"mode": "PERMISSIVE"}).alias("row"))
    (bad,) = read.collect()
    print(json.dumps({"version": spark.version, "bad": list(bad.row)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
