"""Prove that what was derived is what it was derived from, at a consistent cut, row by row."""
