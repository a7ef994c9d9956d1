"""A soak test: producers, relays, a pipeline and upkeep run for a set time, and are killed."""
