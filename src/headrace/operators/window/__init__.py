"""Windowed aggregation: tumbling, hopping, sliding and session windows."""
