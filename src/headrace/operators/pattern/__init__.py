"""Sequence patterns: events of a key that follow each other within a time limit.

It exists for order, which neither windows nor joins express: three failed logins, then a success.
Rows are matched in event-time order, so any arrival order within `delay` gives the same matches. It
is a function on keyed state (`stateful`). For each position in the sequence it keeps only the
latest start, so the state of a key has a constant size.
"""
