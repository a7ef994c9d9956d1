"""The top N of each window.

It exists because Spark's window functions do not rank streams. The store keeps every
result of the aggregation in rank order, by index, and ranks only the groups that a batch touches: a
batch costs as much as it changes, whatever the size of the board. Each rank is a row of the view,
and ties go by key, so a replay gives the same ranking.
"""
