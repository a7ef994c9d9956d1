"""Steps that read Kafka with Spark's own source, and keep their state in Spark alone.

Kafka has no commits that order a log. A batch of Spark is the commit, and the history of each
partition decides what is late.
"""
