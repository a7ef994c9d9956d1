"""SQL as another way to write a pipeline: it makes the same streams as the functions in Python.

`tokens` has the text and its positions, and `clauses` splits a SELECT. `query`, `grouping` and
`windows` make streams. `inline` is `headrace.sql`, and `file` is a whole application in a file.
"""

from headrace.language.sql.file import load_sql
from headrace.language.sql.inline import sql

__all__ = ["load_sql", "sql"]
