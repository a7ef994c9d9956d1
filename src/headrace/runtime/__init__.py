"""How a plan is kept running: queries, checkpoints, the Spark session, clusters."""
