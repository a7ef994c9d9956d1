"""Lookup in a remote system through a user function.

It exists for data that is not in a topic. An answer is as fresh as the remote system or the cache,
and a replay may get other answers: for reproducible results, keep the data in a topic and look it
up as a table. Each batch waits for the function, and a call that exceeds its timeout fails the
pipeline.
"""
