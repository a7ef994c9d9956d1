"""Rows of files, such as the history of a topic, into the log: each exactly once.

A file is read in row order and cut into chunks, which depend on the file alone. Each chunk is a
commit with the next sequence number of a producer that belongs to the file. So a load that was
killed continues after the last chunk in the log.
"""
