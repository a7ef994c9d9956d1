"""Session windows: merged sessions in Spark, and the open ones in the store."""
