"""State in the user's own Python function, by key."""
