"""A durable event log, and event streams on Spark."""
