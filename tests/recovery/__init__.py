"""Crashes: processes killed at every step, and a disk that loses what was not synced."""
