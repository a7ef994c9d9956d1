"""Deduplication: one of several events with the same key within a time to live."""
