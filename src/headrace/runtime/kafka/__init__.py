"""Steps that read Kafka with Spark's own source, and keep their state in Spark alone.

Kafka has no commits that order a log. Here a batch of Spark is the commit, and Spark's watermark
decides what is late.
"""
