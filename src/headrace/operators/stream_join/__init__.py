"""Stream-stream join within a time bound: inner, left, right, full and anti.

It exists to pair events of two topics, and to find events that lack their counterpart. Spark's own
inner join finds the pairs. The store settles unmatched rows by the frontiers of the log: Spark
would emit them a batch late, or never while a topic is quiet. Results do not depend on batches.
Rows are held for the bound plus `delay`, and twice in an outer join. A key has a limit of rows.
"""
