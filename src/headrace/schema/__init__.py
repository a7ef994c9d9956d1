"""The schema of events: columns and their types.

Producers write events, the log stores them as Arrow, and Spark reads them. This package is where
the three agree on types. It works without Spark, because a producer should not need Java to know
that a row is wrong.
"""
