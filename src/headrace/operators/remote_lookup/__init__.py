"""Lookup by a user function outside of the log, for comparison with a table."""
