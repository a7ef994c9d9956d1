"""Table-table join: a live view of joined tables.

It exists because Spark cannot join two changing tables. SQLite keeps the newest version of every
key of each table, and joins them when the view is read. A change writes one row, however many
joined rows it affects; with a changelog, those are found by index and compared. The state depends
on the log alone, so a replay gives the same view. Deleted keys are kept for good.
"""
