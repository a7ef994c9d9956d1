"""SQL as another way to write a pipeline: the same streams, from the same functions.

`pieces` has the text and its places, and `clauses` cuts a SELECT. `query`, `grouping` and `windows`
make streams of it. `inline` is `headrace.sql`, and `file` is a whole application in a file.
"""
