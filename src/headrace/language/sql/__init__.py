"""SQL as another way to write a pipeline: it makes the same streams as the functions in Python.

`tokens` has the text and its positions. `relations` reads FROM, with the functions of `windows`.
`names` resolves columns, and `clauses` splits the rest of a SELECT. `query` makes streams: of rows
itself, and by `grouping`, `joins` and `ranking`, with the spans in `terms`. `inline` is
`headrace.sql`, and `file` is a whole application, with `topics` and the words of `statements`.
"""

from headrace.language.sql.file import load_sql
from headrace.language.sql.inline import sql

__all__ = ["load_sql", "sql"]
