"""Patterns over the sequence of events of a key, compiled to keyed state."""
