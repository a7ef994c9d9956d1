"""The embedded log: metadata in SQLite, data in Arrow segments, all in one folder.

`docs/reference/log-format.md` describes the folder, and ARCHITECTURE.md the modules in the order in
which bytes travel through them. Start reading at `appender`: the commit protocol.
"""
