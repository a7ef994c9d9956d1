"""Emission of windows: which changes are published, and as what."""
