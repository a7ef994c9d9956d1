"""Kafka topics in a Spark plan: connection, source, decoding, dead letters."""
