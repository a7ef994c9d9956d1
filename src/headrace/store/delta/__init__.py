"""Views as Delta tables, in a folder or on object storage. It needs the extra `delta`.

A batch and its position are one commit of the table: a merge with an application transaction. Each
commit leaves the old one readable for some days, and a new version of the view takes the place of
the old one in one commit, at the same path. DuckDB, Polars and Spark read the table.
"""

from headrace.store.delta.declare import Delta

__all__ = ["Delta"]
