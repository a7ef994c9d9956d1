"""Spark plans: source, row metadata, lateness, and the accounting of every row."""
