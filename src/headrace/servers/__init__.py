"""Servers that headrace can start on this machine: Java and its jars, Kafka, a Spark cluster."""
