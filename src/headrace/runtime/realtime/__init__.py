"""Steps that run in Spark's Real-time Mode, in which a row does not wait for a batch.

A query of that mode has long batches. All of its tasks run at once, and rows flow through them one
by one. A batch is only the interval between checkpoints. In return there is no Python, no sink but
a topic, and no state but that of aggregations. `qualify` says which steps can run that way.
"""
