"""Views and operator state in SQLite, stored with their position in the log."""
