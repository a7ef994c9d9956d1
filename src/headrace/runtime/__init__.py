"""Run a plan: queries, checkpoints, the Spark session, clusters."""
