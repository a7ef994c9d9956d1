"""The embedded log: metadata in SQLite, data in Arrow segments, all in one folder.

`docs/reference/log-format.md` describes the folder. In the order in which bytes travel: `layout`
(what a segment holds), `disk` (the system calls durability rests on), `catalog` (the metadata),
`appender` (the commit protocol), `reader`, then `producer` and `consumer` on top of them, and
beside them `groups`, `upkeep` and `recovery`.
"""
