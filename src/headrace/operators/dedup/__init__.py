"""Deduplication: one of several events with the same key within a time to live.

It exists because producers retry, and because Spark's own operator keeps whichever row a batch has
first. Rows are taken in log order, and the ttl is measured in event time, before and after the kept
row. So the result does not depend on batches, and a replay repeats it. It costs a stored key for
`ttl` plus `delay`; the rows of a batch, at most 500,000, pass through the driver.
"""
