"""PostgreSQL as a source of changes, through `pgoutput`, the plugin that every server has.

A publication names the tables, and a replication slot keeps the WAL that was not read yet.
`replication.py` speaks the replication protocol over libpq, `decoder.py` reads its messages, and
`in_progress.py` keeps transactions that the server sends before their commit.
"""
