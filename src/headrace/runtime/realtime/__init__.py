"""Steps that run in Spark's Real-time Mode: a row goes from topic to topic without waiting for
others.

A query of that mode has long batches in which all of its tasks run at once, and rows flow through
them one by one. A batch is only how often Spark writes down how far it is. In return there is no
Python in it, no sink but a topic, and no state but that of aggregations; `qualify` says which steps
these are.
"""
