"""Views in PostgreSQL: a table each, under its own name. It needs the extra `postgres`.

A batch is copied into a temporary table and merged with its position, in one transaction. The row
with the position is locked meanwhile, so a process that fell behind writes nothing.
"""

from headrace.store.postgres.declare import Postgres

__all__ = ["Postgres"]
