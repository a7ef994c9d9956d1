"""Changes of MariaDB databases, from the binlog.

The server writes each committed transaction to its binlog, in commit order. A connection that looks
like a replica's reads it. Rows of a snapshot come from a transaction that knows its exact place in
the binlog. Nothing is set up in the database but the rights of the user.
"""
