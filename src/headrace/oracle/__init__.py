"""The meaning of streams in plain Python: events, expressions and the steps that change rows.

Written to be read, not to be fast: one row at a time, in log order. Each operator has a `meaning`
module that builds on this, and tests compare Spark with it. Nothing here imports Spark.
"""
