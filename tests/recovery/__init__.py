"""Crashes: processes killed at every step, and a disk that loses unsynced writes."""
