"""Stream-table join: each event with the table version that was valid at its time."""
