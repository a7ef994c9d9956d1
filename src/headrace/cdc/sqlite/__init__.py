"""Changes of a SQLite database, by triggers that write each of them into a table beside the data.

The triggers run in the transaction of the application, so a change is in the table if and only if
it was committed. The reader moves changes into the log, and removes what is there.
"""

from headrace.cdc.sqlite.source import SqliteSource

__all__ = ["SqliteSource"]
