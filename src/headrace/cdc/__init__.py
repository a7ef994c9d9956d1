"""Change data capture: a database's committed changes, as topics of the log.

A `Source` gives whole transactions in commit order, and rows of tables in chunks. The capture
(`capture.py`) writes both as Debezium's envelopes, one topic per table. The position in the source
is a record of the same commit, so each change is in the log once, whatever dies.
"""
