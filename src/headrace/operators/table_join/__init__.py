"""Table-table join: a live view of joined tables."""
