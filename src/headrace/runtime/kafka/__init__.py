"""Steps that read Kafka with Spark's own source, and keep their state in Spark alone.

Kafka has no commits that order a log. Here a batch of Spark is the commit: what came before it is
what earlier batches have read, and Spark's own watermark says what is too late.
"""
