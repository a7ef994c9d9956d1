"""Backups and integrity checks of stored data."""
