"""Emission of windows: the changes that are published, and their kind of pane."""
