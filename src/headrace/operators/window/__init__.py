"""Windowed aggregation: counts, sums and sketches by key and window of event time.

Promises: a row counts in every window that holds it, or it is in the late stream; the result does
not depend on batches, parallelism or crashes. Costs: Spark keeps a state row for each key and open
window (the rows themselves for sliding windows), and the store a row for each key and window.
Sessions are merged by Spark from parts that the store keeps.
"""
