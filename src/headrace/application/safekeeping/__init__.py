"""Keeping what is stored safe: whole copies of it, and a look at all of it."""
