"""The catalog demo: an online shop on SQLite, and three stores that follow its database.

`shop` is the application and its database, `followers` runs the capture and the stores in processes
of their own, `play` is what happens to them, `screen` draws it, `account` compares every store with
the database at the end, and `stage` puts it all together.
"""
