"""Rules over the recent events of each key, evaluated for every event."""
