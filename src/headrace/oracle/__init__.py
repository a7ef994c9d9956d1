"""The plain-Python meaning of streams: events, expressions and the steps that change rows.

Written to be read and believed, not to be fast: one row after the other, in log order. Each
operator has a `meaning` module of its own that builds on these, and tests compare Spark with it.
Nothing here imports Spark.
"""
