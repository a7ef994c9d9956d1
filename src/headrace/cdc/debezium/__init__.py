"""Changes of any database that Debezium has a connector for, through Debezium's embedded engine.

The engine runs in Java, which neither survives a fork nor starts twice, so it has a process of its
own (`engine.py`). Its changes go the same way as those of other sources: into one loop, one commit
for each transaction. The position in the log, not a file of the engine, says where it goes on.
"""
