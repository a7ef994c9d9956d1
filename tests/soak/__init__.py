"""Everything at once, for a set time: producers, relays, a pipeline, upkeep, and kills of them."""
