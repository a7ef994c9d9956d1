"""Stream-table join: each event with the table version that was valid at its time.

It exists because Spark cannot join a stream with the versions of a table.
A row waits in the log until the table has caught up or `wait` is over, and sees the versions known
by that commit, so a replay finds the same versions. With `amend`, a late change corrects published
rows. Every version of the table is kept in SQLite and in the driver's memory.
"""
