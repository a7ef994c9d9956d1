"""SQL as another way to write a pipeline: the same streams, from the same functions.

`pieces` has the text and its places, and `clauses` cuts a SELECT. `query`, `grouping` and `windows`
make streams of it. `inline` is `headrace.sql`, and `file` is a whole application in a file.
"""

from headrace.language.sql.file import load_sql
from headrace.language.sql.inline import sql

__all__ = ["load_sql", "sql"]
