"""Keyed state in a user's Python function, called with many keys at once.

It exists because Spark calls Python once per key, which is slow. Keys are hashed into buckets, and
each bucket is one Arrow value in Spark's state store. With order="time", rows wait for the
watermark and come in event-time order, so a fold gives the same output whatever the batches are. A
bucket is read in each batch and written whole when it changes, so it is limited to 64 MB.
"""
